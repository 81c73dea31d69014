package agent

import "sync/atomic"

// cell is the part of a bucket that requests touch: a cache line of plain
// counters without pointers, so that it can live in a memory-mapped file.
//
// What was admitted is derived, so that counting costs the decision nothing:
//
//	admitted = credited − tokens (where above zero) − back − pending
//
// Requests only ever subtract from tokens and add to back, pending and refused. All
// else is written by whoever holds the bucket's mutex, with compare-and-swap
// where requests may interfere: so a denial that meets a refill is either
// counted as refused or admitted, never both and never neither.
type cell struct {
	tokens   atomic.Int64 // spendable now; below zero: single units refused since the last fold
	refused  atomic.Int64 // units refused, those below zero in tokens not counted
	back     atomic.Int64 // units put back by requests that another limit denied, not yet folded
	pending  atomic.Int64 // units taken by requests that another limit may still deny
	credited atomic.Int64 // all units ever put in, less those taken out unspent

	collectedAdmitted int64 // already handed to the ledger's rows
	collectedDenied   int64
	_                 int64 // pads to a cache line: neighbours must not share it (BenchmarkCellNeighbours)
}

// take removes n units if they are there. For one unit it is a single
// subtraction, and a refusal stays behind as a negative count; for several it
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

// fold turns what requests left behind into counts: refusals below zero, and
// units that were put back, which become spendable again. The caller holds the
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
		if v < 0 {
			c.refused.Add(-v)
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
// them is seen in back, and one still pending is left for the next time. The
// caller holds the mutex, so that credited stands still.
func (c *cell) admitted() int64 {
	credited := c.credited.Load()
	tokens := c.tokens.Load()
	pending := c.pending.Load()
	back := c.back.Load()
	return credited - max(tokens, 0) - pending - back
}

// denied returns the units denied so far.
func (c *cell) denied() int64 {
	return c.refused.Load() + max(-c.tokens.Load(), 0)
}
