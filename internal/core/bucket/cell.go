package bucket

// Hot is the part of a bucket that requests touch: plain counters without pointers. It lies close to those of other
// buckets, so that many fit in the processor's caches, or at the head of a journal's Cell.
//
// What was admitted is derived, so that counting costs the decision nothing:
//
//	admitted = put in − there (where above zero) − back − pending
//
// back never decreases; units that become spendable again are added to what was put in.
//
// Requests only subtract whole units from tokens, and add to the other counters. All else is written under the bucket's
// mutex, with compare-and-swap where requests may interfere. A failed Take is not yet a denial, for the request asks
// again under the mutex (Ask). The trace that it leaves in tokens, below zero, counts for nothing.
type Hot struct {
	tokens  counter // Unit × what is spendable now, and the parity bit; below zero: none, and traces of refused requests
	back    counter // units put back by requests that another limit denied
	pending counter // units taken by requests that another limit may still deny
	refused counter // units denied
}

// Cell is what a journal keeps of a bucket, in a memory-mapped file: all that must survive a crash.
//
// What was admitted is right in it at every instant, so the process may be killed between any two stores. tokens counts
// in steps of Unit, and its low bit says which of the two counts in put is valid. To put units in, write the other
// count, then switch to it with the same compare-and-swap that changes tokens (commit). A bucket without a cell has
// that count in its stock.
type Cell struct {
	Hot
	// put is all units ever put into tokens, less those taken out unspent, by parity of tokens.
	put [2]counter
	elsewhere
}

// elsewhere is units decided here that count in another bucket.
type elsewhere struct {
	// inherited is units taken for tenants below the bucket's own: admitted here, billed there. It is raised before
	// such units are taken and lowered after they were put back, so that never too much is billed here. pending is
	// raised before it and lowered after it, so that a crash does not leave too little.
	inherited counter
	// excused is units refused here and denied nowhere here: the limit that admits above this one decided them. The
	// server is told of them as demand.
	excused counter
}

// newHot returns counters that fill a cache line unless buckets are many: neighbours are likely to be in use on several
// processors at once (BenchmarkCellNeighbours).
func newHot(crowded bool) *Hot {
	if crowded {
		return new(Hot)
	}
	return &new(struct {
		Hot
		_ [32]byte
	}).Hot
}

// Take removes n units (at least 1) if they are there. On false the caller asks Bucket.Ask with the same n.
func (h *Hot) Take(n int64) bool { return take(&h.tokens, n) }

// Try is Take for a request that asks again: it leaves no trace of a refusal.
func (h *Hot) Try(n int64) bool { return takeQuietly(&h.tokens, n) }

// Dry reports whether no unit is there.
func (h *Hot) Dry() bool { return h.tokens.Load() < Unit }

// Hold announces that n units about to be taken may be put back, because another limit of the request is asked later.
// Each Hold is followed by one Release, after PutBack where the units went back. Only a bucket whose units are
// billed needs it, and only where it is not the last to be asked.
func (h *Hot) Hold(n int64) { h.pending.Add(n) }

// Release ends a Hold.
func (h *Hot) Release(n int64) { h.pending.Add(-n) }

// PutBack returns n units taken for a request that another limit denied. The next refill makes them spendable.
func (h *Hot) PutBack(n int64) { h.back.Add(n) }

// Unit is what one unit counts in tokens.
const Unit = 2

// take removes n units if they are there. For one unit it is a single subtraction. A refusal leaves a trace below zero,
// where the next one stops after a load. For several units it looks first: a refused large one denies nobody else.
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

// taken is stock.taken of a cell that a crash left.
func (c *Cell) taken() int64 { return (&stock{Hot: &c.Hot, in: inCell}).taken() }

// Denied returns the units denied so far, less those that were excused.
func (c *Cell) Denied() int64 { return c.refused.Load() - c.excused.Load() }

// Mark returns a hash that differs once the cell has changed, but for one case in 2^64. A new cell's is not 0.
func (c *Cell) Mark() uint64 {
	h := uint64(1)
	for _, n := range [...]*counter{&c.tokens, &c.back, &c.pending, &c.refused, &c.put[0], &c.put[1], &c.inherited, &c.excused} {
		h = (h ^ uint64(n.Load())) * 0x9E3779B97F4A7C15
		h ^= h >> 32
	}
	return h
}
