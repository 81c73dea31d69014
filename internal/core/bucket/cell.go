package bucket

import (
	"sync/atomic"
	"unsafe"
)

// Hot is the part of a bucket that requests touch: plain counters without pointers, close to those of other buckets, so that many are in
// the processor's caches, or, where a crash is to take nothing, in front of a journal's cell.
//
// What was admitted is derived, so that counting costs the decision nothing:
//
//	admitted = put in − there (where above zero) − put back − pending
//
// What requests put back only grows; that it became spendable again counts as put in once more.
//
// Requests only ever subtract from tokens, in whole units, and add to the others. All
// else is written by whoever holds the bucket's mutex, with compare-and-swap
// where requests may interfere. A refusal is no denial yet, for the request asks again
// under the mutex (Slow): what it leaves in tokens, below zero, counts for nothing.
type Hot struct {
	tokens  counter // Unit × what is spendable now, and the parity; below zero: none, and traces of single units refused
	back    counter // units put back by requests that another limit denied
	pending counter // units taken by requests that another limit may still deny
	refused counter // units denied
}

// Cell is what a journal has of a bucket, in a memory-mapped file: all that a crash is not to take.
//
// What was admitted is right in it at every instant, so that a process may be killed between any two stores:
// tokens counts in steps of Unit, and its low bit tells which of the two counts of what was
// put in goes with it. Who puts in writes the other one first, and then both are exchanged by the one
// compare-and-swap of tokens (commit). Of a bucket without a cell its stock has what was put in.
type Cell struct {
	Hot
	// put is all units ever put into tokens, less those taken out unspent, by parity of tokens.
	put [2]counter
	// inherited is units taken for tenants below the bucket's own: admitted here, and
	// billed there. It is raised before such units are taken and lowered after they
	// were put back, so that what is billed here is never too much; and pending is raised before
	// and lowered after that, so that a crash does not leave it too little.
	inherited counter
	// excused is units that the bucket refused and that are denied nowhere here: what the
	// limit admits above itself decided them. The server is told of them, for they are demand.
	excused counter
}

// newHot returns one in a cache line of its own where buckets are few: those that lie side by side are likely to be in use on
// several processors at once (BenchmarkCellNeighbours).
func newHot(crowded bool) *Hot {
	if crowded {
		return new(Hot)
	}
	return &new(struct {
		Hot
		_ [32]byte
	}).Hot
}

// Take is Bucket.Take.
func (h *Hot) Take(n int64) bool { return take(&h.tokens, n) }

// Dry reports whether no unit is at hand.
func (h *Hot) Dry() bool { return h.tokens.Load() < Unit }

// Hold is Bucket.Hold.
func (h *Hot) Hold(n int64) { h.pending.Add(n) }

// Release is Bucket.Release.
func (h *Hot) Release(n int64) { h.pending.Add(-n) }

// Unit is what one unit counts in tokens.
const Unit = 2

// take removes n units if they are there. For one unit it is a single
// subtraction, and a refusal leaves a trace below zero, where one that follows stops at a look; for several it
// looks first, so that a refused large request denies nobody else.
func take(tokens *counter, n int64) bool {
	if n == 1 {
		return tokens.Load() >= 0 && tokens.Add(-Unit) >= 0
	}
	return takeQuietly(tokens, n)
}

// takeQuietly is take without a trace of a refusal.
func takeQuietly(tokens *counter, n int64) bool {
	for {
		v := tokens.Load()
		if v>>1 < n {
			return false
		}
		if tokens.CompareAndSwap(v, v-n*Unit) {
			return true
		}
	}
}

// unitsOf returns what is spendable now.
func unitsOf(tokens *counter) int64 { return max(tokens.Load()>>1, 0) }

// taken returns the units that requests took and did not put back, whether or not they
// may yet: all that were admitted, and some of requests under way. It is what a crash leaves.
func (c *Cell) taken() int64 {
	tokens := c.tokens.Load()
	return c.put[tokens&1].Load() - max(tokens>>1, 0) - c.back.Load()
}

// TakenOwn is taken without what is billed below: what a crash leaves to bill here. Of requests
// under way it may have some that are billed below.
func (c *Cell) TakenOwn() int64 { return c.taken() - max(c.inherited.Load()-c.pending.Load(), 0) }

// Denied returns the units denied so far, less those that are denied nowhere here.
func (c *Cell) Denied() int64 { return c.refused.Load() - c.excused.Load() }

// Reordered is a copy of a cell that has what was refused second, where now what came back is.
func (c *Cell) Reordered() *Cell {
	n := new(Cell)
	n.tokens.Store(c.tokens.Load())
	n.refused.Store(c.back.Load())
	n.back.Store(c.pending.Load())
	n.pending.Store(c.refused.Load())
	n.put[0].Store(c.put[0].Load())
	n.put[1].Store(c.put[1].Load())
	n.inherited.Store(c.inherited.Load())
	n.excused.Store(c.excused.Load())
	return n
}

// stock is what requests touch, with what their bucket knows of it besides. Its methods want the bucket's mutex held.
type stock struct {
	*Hot
	in     int64                  // all units ever put into tokens, less those taken out unspent; inCell, for good, where that is in a cell
	shared atomic.Pointer[shared] // nil where nothing of it was needed yet
}

const inCell = -1

func (s *stock) init(at *Cell, crowded bool) {
	if at != nil {
		s.Hot, s.in = &at.Hot, inCell
	} else {
		s.Hot = newHot(crowded)
	}
}

// mapped is the cell that a journal has; nil without.
func (s *stock) mapped() *Cell {
	if atomic.LoadInt64(&s.in) != inCell { // without the mutex, too
		return nil
	}
	return (*Cell)(unsafe.Pointer(s.Hot)) // in front of which it is
}

// common returns what requests share besides, and makes it if there is none.
func (s *stock) common() *shared {
	if s.shared.Load() == nil {
		s.shared.Store(new(shared))
	}
	return s.shared.Load()
}

// units returns what is spendable now.
func (s *stock) units() int64 { return unitsOf(&s.tokens) }

// takeQuietly removes n units if they are there.
func (s *stock) takeQuietly(n int64) bool { return takeQuietly(&s.tokens, n) }

// commit puts n units more in, or takes out -n unspent ones, and makes those spendable u, at one
// stroke: false when a request took some since tokens was v.
func (s *stock) commit(v, u, n int64) bool {
	c := s.mapped()
	if c == nil {
		if !s.tokens.CompareAndSwap(v, u<<1) {
			return false
		}
		atomic.StoreInt64(&s.in, s.in+n)
		return true
	}
	p := v & 1
	c.put[1-p].Store(c.put[p].Load() + n)
	return c.tokens.CompareAndSwap(v, u<<1|(1-p))
}

// putIn returns all units ever put in, less those taken out unspent, where tokens are as many.
func (s *stock) putIn(tokens int64) int64 {
	if c := s.mapped(); c != nil {
		return c.put[tokens&1].Load()
	}
	return s.in
}

// admit counts n units as put in and spent at once, so that no one else can take them.
func (s *stock) admit(n int64) {
	for {
		if v := s.tokens.Load(); s.commit(v, v>>1, n) {
			return
		}
	}
}

// admitted returns the units admitted so far: never more than were, so that what
// is settled from it is never taken back, and exact once no request is under way. The
// order of the reads is what makes it a lower bound: a unit put back between
// them is seen in back, and one still pending is left for the next time.
func (s *stock) admitted() int64 {
	tokens := s.tokens.Load()
	pending := s.pending.Load()
	back := s.back.Load()
	return s.putIn(tokens) - max(tokens>>1, 0) - pending - back
}

// taken returns the units that requests took and did not put back, whether or not they
// may yet: all that were admitted, and some of requests under way.
func (s *stock) taken() int64 {
	tokens := s.tokens.Load()
	return s.putIn(tokens) - max(tokens>>1, 0) - s.back.Load()
}

// refuse counts n units as denied.
func (s *stock) refuse(n int64) { s.refused.Add(n) }

// denied returns the units denied so far.
func (s *stock) denied() int64 { return s.refused.Load() }

// due returns the units that came back and are not folded yet. It needs no mutex.
func (s *stock) due() int64 {
	h := s.shared.Load()
	if h == nil {
		return s.back.Load()
	}
	folded := h.folded.Load() // first: it never exceeds the others
	return s.back.Load() + h.finished.Load() - folded
}

// folded returns the units that came back and are spendable again, or nobody's.
func (s *stock) folded() int64 {
	if h := s.shared.Load(); h != nil {
		return h.folded.Load()
	}
	return 0
}

// cameBack notes that n more units are folded.
func (s *stock) cameBack(n int64) {
	if n != 0 {
		s.common().folded.Add(n)
	}
}

// inherited is units that requests of tenants below took here; see Cell.
func (s *stock) inherited() int64 {
	if c := s.mapped(); c != nil {
		return c.inherited.Load()
	}
	if h := s.shared.Load(); h != nil {
		return h.inherited.Load()
	}
	return 0
}

// excused is units that were refused here and are denied nowhere; see Cell.
func (s *stock) excused() int64 {
	if c := s.mapped(); c != nil {
		return c.excused.Load()
	}
	if h := s.shared.Load(); h != nil {
		return h.excused.Load()
	}
	return 0
}

// change folds what came back, puts n units in, or takes -n unspent units out, but never below
// zero, and clears traces below zero. It returns the units now spendable, and by how many it
// fell short.
func (s *stock) change(n int64) (next, short int64) {
	for {
		v := s.tokens.Load()
		due := s.due()
		have := max(v>>1, 0)
		next = max(have+due+n, 0)
		short = next - have - due - n
		if due == 0 && next == v>>1 {
			return next, short
		}
		if s.commit(v, next, next-have) {
			s.cameBack(due)
			return next, short
		}
	}
}

// giveBack has n units come back, for whoever holds the mutex.
func (s *stock) giveBack(n int64) { s.back.Add(n) }

// fold clears what requests left behind: traces below zero, and units
// that came back, which become spendable again. It returns the units now spendable.
func (s *stock) fold() int64 {
	have, _ := s.change(0)
	return have
}

// credit puts n units in, or takes -n unspent units out, but never below zero:
// it returns the units by which it fell short.
func (s *stock) credit(n int64) (short int64) {
	_, short = s.change(n)
	return short
}

// credited returns the units that are in use, or back, or spendable: what was put in and is not
// nobody's.
func (s *stock) credited() int64 { return s.putIn(s.tokens.Load()) - s.folded() }

// inUse returns the units that requests have in hand.
func (s *stock) inUse() int64 {
	n := s.taken()
	if h := s.shared.Load(); h != nil {
		n -= h.finished.Load()
	}
	return n
}

// claim takes up to n units for a request that waits its turn, those that came
// back first, so that nobody overtakes it.
func (s *stock) claim(n int64) (got int64) {
	for {
		v := s.tokens.Load()
		back := min(s.due(), n)
		here := min(max(v>>1, 0), n-back)
		switch {
		case back > 0:
			if s.commit(v, v>>1-here, back) {
				s.cameBack(back)
				return back + here
			}
		case here == 0 || s.tokens.CompareAndSwap(v, v-here*Unit):
			return here
		}
	}
}

// forfeit takes up to n units that came back out for good.
func (s *stock) forfeit(n int64) int64 {
	n = min(s.due(), n)
	s.cameBack(n)
	return n
}
