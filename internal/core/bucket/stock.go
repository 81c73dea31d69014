package bucket

import (
	"sync/atomic"
	"unsafe"
)

// stock is the counters that requests touch, with the state that belongs to them. Its methods need the mutex unless
// they say so.
type stock struct {
	*Hot
	in     int64                  // all units ever put in, less those taken out unspent; inCell where a cell has it
	shared atomic.Pointer[shared] // never nil: &unshared until something of it is written
}

const inCell = -1

// shared is state that requests and the owner share besides Hot. Few buckets need it. Once there, it stays.
type shared struct {
	shutUntil counter // see Shut; written under the mutex
	shutRetry counter // when one unit may be there, as of then
	until     counter // units may be taken until then; 0 for ever. Written under the mutex
	finished  counter // slots given back by requests that ended
	folded    counter // units that came back and are spendable again, or nobody's; written under the mutex
	elsewhere         // of a bucket without a cell
	// patient counts the requests that wait their turn, so that a request that gives back sees them without the mutex.
	// It is written under the mutex.
	patient flag
	keep    flag // more idle slots than this are a surplus that the owner has not noticed; -1: it has to hear anyway
}

// unshared is the shared of buckets that need none. Nobody writes it.
var unshared shared

// mapped is the journal's cell; nil without one. It needs no mutex.
func (s *stock) mapped() *Cell {
	if atomic.LoadInt64(&s.in) != inCell {
		return nil
	}
	return (*Cell)(unsafe.Pointer(s.Hot)) // Hot is at its head
}

// common returns the bucket's own shared, to be written, and makes it if there is none.
func (s *stock) common() *shared {
	if s.shared.Load() == &unshared {
		s.shared.Store(new(shared))
	}
	return s.shared.Load()
}

// elsewhere returns the counters of units that count in another bucket. It needs no mutex.
func (s *stock) elsewhere() *elsewhere {
	if c := s.mapped(); c != nil {
		return &c.elsewhere
	}
	return &s.shared.Load().elsewhere
}

// units returns the units spendable now.
func (s *stock) units() int64 { return max(s.tokens.Load()>>1, 0) }

// commit puts n more units in, or takes -n unspent ones out, and makes u spendable, unless tokens is no longer v.
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

// putIn returns all units ever put in, less those taken out unspent, as of that value of tokens.
func (s *stock) putIn(tokens int64) int64 {
	if c := s.mapped(); c != nil {
		return c.put[tokens&1].Load()
	}
	return s.in
}

// admit counts n units as put in and spent in one step, so that no one else can take them. Of -n units that were spent
// it makes units that were never put in.
func (s *stock) admit(n int64) {
	for {
		if v := s.tokens.Load(); s.commit(v, v>>1, n) {
			return
		}
	}
}

// admitted returns the units admitted so far. It is exact while no request is under way, and never too high, so that
// nothing settled from it is ever taken back. The order of the reads makes it a lower bound. A unit put back between
// them is seen in back, and one still pending is left for the next time.
func (s *stock) admitted() int64 {
	tokens := s.tokens.Load()
	pending := s.pending.Load()
	back := s.back.Load()
	return s.putIn(tokens) - max(tokens>>1, 0) - pending - back
}

// taken returns the units that requests took and did not put back: those admitted, and some under way.
func (s *stock) taken() int64 {
	tokens := s.tokens.Load()
	return s.putIn(tokens) - max(tokens>>1, 0) - s.back.Load()
}

// due returns the units that came back and are not folded yet. It needs no mutex.
func (s *stock) due() int64 {
	h := s.shared.Load()
	folded := h.folded.Load() // first: it never exceeds the others
	return s.back.Load() + h.finished.Load() - folded
}

// folds notes that n more of the units that came back are spendable again, or nobody's. -n says that units came back
// which are put in no more.
func (s *stock) folds(n int64) {
	if n != 0 {
		s.common().folded.Add(n)
	}
}

// change folds what came back, puts n units in or takes -n unspent ones out, but never below zero, and clears traces
// below zero. It returns the units spendable now, and by how many it fell short.
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
			s.folds(due)
			return next, short
		}
	}
}

// fold makes units that came back spendable, and returns all that are spendable now.
func (s *stock) fold() int64 {
	have, _ := s.change(0)
	return have
}

// credit puts n units in, or takes -n unspent ones out, but never below zero. It returns by how many it fell short.
func (s *stock) credit(n int64) (short int64) {
	_, short = s.change(n)
	return short
}

// credited returns the units put in that are not nobody's: in use, back, or spendable.
func (s *stock) credited() int64 { return s.putIn(s.tokens.Load()) - s.shared.Load().folded.Load() }

// inUse returns the units that requests have in hand.
func (s *stock) inUse() int64 { return s.taken() - s.shared.Load().finished.Load() }

// claim takes up to n units for a request that waits its turn. Units that came back are taken first, so that nobody
// overtakes it.
func (s *stock) claim(n int64) (got int64) {
	for {
		v := s.tokens.Load()
		back := min(s.due(), n)
		here := min(max(v>>1, 0), n-back)
		switch {
		case back > 0:
			if s.commit(v, v>>1-here, back) {
				s.folds(back)
				return back + here
			}
		case here == 0 || s.tokens.CompareAndSwap(v, v-here*Unit):
			return here
		}
	}
}

// forfeit makes up to n units that came back nobody's, and returns how many.
func (s *stock) forfeit(n int64) int64 {
	n = min(s.due(), n)
	s.folds(n)
	return n
}

// withdraw takes up to n unspent units out, those that came back first, and returns how many.
func (s *stock) withdraw(n int64) (got int64) {
	got = s.forfeit(n)
	for {
		v := s.tokens.Load()
		here := min(max(v>>1, 0), n-got)
		if here == 0 || s.commit(v, v>>1-here, -here) {
			return got + here
		}
	}
}
