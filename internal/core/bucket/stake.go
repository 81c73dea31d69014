package bucket

import "github.com/f4ee788f/quota/internal/core/limit"

// Stake is what a journal keeps of a reservation's units of one bucket, in 64 bytes beside the bucket's Cell. While it
// is open the bucket counts all units reserved as taken and pending. A crash bills those used in their place.
//
// It is settled in one step of the bucket, which makes the reserved units those used. The process may be killed between
// any two stores: before the step the stake tells what was used, after it the bucket does (Crash.Add).
type Stake struct {
	reserved counter    // units that the bucket has as taken; 0 until the stake is open
	used     [2]counter // of all units: two counts, of which the reservation says which is valid
	put      counter    // what the bucket has been put in once the stake is settled
	phase    counter    // stakeOpen, stakeSettling, stakeSettled; the last two under the bucket's mutex
	_        [3]counter
}

const (
	stakeOpen     = iota
	stakeSettling // put is written; the bucket has it once the step is done
	stakeSettled
)

// Reserve says how many units are reserved, all of which were taken of the bucket. It may be raised later.
func (s *Stake) Reserve(n int64) {
	if s != nil {
		s.reserved.Store(n)
	}
}

// Use writes one of the two counts of units used.
func (s *Stake) Use(which int, n int64) {
	if s != nil {
		s.used[which&1].Store(n)
	}
}

// begin notes what the bucket has been put in after the step that follows.
func (s *Stake) begin(put int64) {
	if s != nil {
		s.put.Store(put)
		s.phase.Store(stakeSettling)
	}
}

// settled notes that the step is done.
func (s *Stake) settled() {
	if s != nil {
		s.phase.Store(stakeSettled)
	}
}

// Crash is the stakes that a crash left open in one bucket.
type Crash struct{ reserved, inherited, used int64 }

// Add adds a stake of the bucket, as it was left. which says which of the counts of units used is valid; inherited that
// they are billed at a tenant below. Numbers that no stake has are ignored: somebody else may have written the file.
func (k *Crash) Add(s *Stake, c *Cell, which int, inherited bool) {
	reserved, used := s.reserved.Load(), s.used[which&1].Load()
	switch phase := s.phase.Load(); {
	case phase == stakeSettled, phase == stakeSettling && c.putIn() == s.put.Load():
		return
	case reserved < 0 || reserved > limit.MaxUnits || used < 0 || used > limit.MaxUnits:
		return
	}
	k.reserved += reserved
	if inherited {
		k.inherited += reserved
	} else {
		k.used += used
	}
}

// TakenOwn returns the units to bill here after a crash, which left such stakes. Of requests under way, and of
// reservations that were just being settled, it may include some billed below.
func (c *Cell) TakenOwn(k Crash) int64 {
	flying := max(c.pending.Load()-k.reserved, 0) // it is less only where power was lost
	below := c.inherited.Load() - k.inherited - flying
	return c.taken() - k.reserved + k.used - max(below, 0)
}

// putIn is stock.putIn of a cell that a crash left.
func (c *Cell) putIn() int64 { return c.put[c.tokens.Load()&1].Load() }
