package agent

// cell is the part of a bucket that requests touch: a cache line of plain
// counters without pointers, so that it can live in a memory-mapped file.
//
// What was admitted is derived, so that counting costs the decision nothing:
//
//	admitted = finished + credited − tokens (where above zero) − back − pending
//
// A slot that a request gives back at its end goes into back like one that was put back, and
// counts as finished: it was admitted once, and is there again.
//
// Requests only ever subtract from tokens and add to back, pending and finished. All
// else is written by whoever holds the bucket's mutex, with compare-and-swap
// where requests may interfere. A refusal is no denial yet, for the request asks again
// under the mutex (Slow): what it leaves in tokens, below zero, counts for nothing.
type cell struct {
	tokens   counter // spendable now; below zero: none, and traces of single units refused
	refused  counter // units denied
	back     counter // units put back by requests that another limit denied, and slots given back; not yet folded
	pending  counter // units taken by requests that another limit may still deny
	credited counter // all units ever put in, less those taken out unspent

	collectedAdmitted int64 // already handed to the ledger's rows
	collectedDenied   int64

	finished counter // slots given back by requests that came to their end
} // a cache line: neighbours must not share it (BenchmarkCellNeighbours)

// take removes n units if they are there. For one unit it is a single
// subtraction, and a refusal leaves a trace below zero; for several it
// looks first, so that a refused large request denies nobody else.
func (c *cell) take(n int64) bool {
	if n == 1 {
		return c.tokens.Add(-1) >= 0
	}
	for {
		v := c.tokens.Load()
		if v < n {
			return false
		}
		if c.tokens.CompareAndSwap(v, v-n) {
			return true
		}
	}
}

// fold clears what requests left behind: traces below zero, and units
// that were put back, which become spendable again. The caller holds the
// bucket's mutex. It returns the units now spendable.
func (c *cell) fold() int64 {
	back := c.back.Load()
	for {
		v := c.tokens.Load()
		if v >= 0 && back == 0 {
			return v
		}
		next := max(v, 0) + back
		if !c.tokens.CompareAndSwap(v, next) {
			continue
		}
		if back != 0 {
			c.back.Add(-back)
		}
		return next
	}
}

// credit puts n units in, or takes -n unspent units out, but never below zero:
// it returns the units by which it fell short. The caller holds the mutex.
func (c *cell) credit(n int64) (short int64) {
	for {
		v := c.fold()
		next := max(v+n, 0)
		if c.tokens.CompareAndSwap(v, next) {
			c.credited.Add(next - v)
			return next - v - n
		}
	}
}

// admitted returns the units admitted so far: never more than were, so that what
// is settled from it is never taken back, and exact once no request is under way. The
// order of the reads is what makes it a lower bound: a unit put back between
// them is seen in back, a slot is in back before it is in finished, and one still
// pending is left for the next time. The caller holds the mutex, so that credited stands still.
func (c *cell) admitted() int64 {
	finished := c.finished.Load()
	credited := c.credited.Load()
	tokens := c.tokens.Load()
	pending := c.pending.Load()
	back := c.back.Load()
	return finished + credited - max(tokens, 0) - pending - back
}

// taken returns the units that requests took and did not put back, whether or not they
// may yet. The caller holds the mutex.
func (c *cell) taken() int64 {
	finished := c.finished.Load()
	tokens := c.tokens.Load()
	return finished + c.credited.Load() - max(tokens, 0) - c.back.Load()
}

// finish gives back n slots of a request that came to its end.
func (c *cell) finish(n int64) {
	c.back.Add(n) // first: see admitted
	c.finished.Add(n)
}

// inUse returns the units that requests have in hand. The caller holds the mutex.
func (c *cell) inUse() int64 {
	return c.credited.Load() - max(c.tokens.Load(), 0) - c.back.Load()
}

// claim takes up to n units for a request that waits its turn, those that came
// back first, so that nobody overtakes it. The caller holds the mutex.
func (c *cell) claim(n int64) (got int64) {
	if got = min(c.back.Load(), n); got > 0 {
		c.back.Add(-got)
	}
	for got < n {
		v := c.tokens.Load()
		m := min(v, n-got)
		if m <= 0 {
			break
		}
		if c.tokens.CompareAndSwap(v, v-m) {
			got += m
			break
		}
	}
	return got
}

// forfeit takes up to n units that came back out for good. The caller holds the mutex.
func (c *cell) forfeit(n int64) int64 {
	n = min(c.back.Load(), n)
	if n > 0 {
		c.back.Add(-n)
		c.credited.Add(-n)
	}
	return n
}

// denied returns the units denied so far.
func (c *cell) denied() int64 { return c.refused.Load() }
