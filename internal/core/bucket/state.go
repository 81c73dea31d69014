package bucket

// State is a snapshot for answers' headers and for operators.
type State struct {
	Tokens    int64 // spendable here now
	Remaining int64 // about what the whole bucket has left
	Capacity  int64 // the most units that the whole bucket holds; 0 where nothing says so
	ResetIn   int64 // microseconds until the whole bucket is full or its window turns
	Live      bool
	Leased    bool // it lives, and has not ended: out of contact one goes on beyond its end
	Trickle   int64
	Waiting   int64 // units that requests wait for
	InUse     int64 // slots that requests have
}

// State returns a snapshot at now.
func (b *Bucket) State(now int64) State {
	defer b.enter().leave()
	b.foldLocked()
	s := State{
		Tokens: b.stock.units() + b.aside(), Remaining: b.leftLocked(now), Capacity: b.capacity,
		Live: b.live, Leased: b.live && now < b.expires, Trickle: b.trickle, Waiting: b.waitingLocked().units,
	}
	s.ResetIn = b.resetInLocked(now, s.Remaining)
	if b.slots {
		s.InUse = b.stock.inUse()
	}
	return s
}

// leftLocked returns about how many units the whole bucket has left at now. It is the number that the server last told,
// less units spent here since, plus units that trickled in here. It ignores units that others spent since, so it is as
// old as the lease.
func (b *Bucket) leftLocked(now int64) int64 {
	here := b.stock.units() + b.aside()
	switch {
	case b.counting, b.slots, b.capacity == 0:
		return max(b.remaining, here)
	case b.answeredAt == 0:
		return b.capacity
	case b.length > 0 && now >= b.turnAt, !b.live && now >= b.resetAt:
		return b.capacity // nobody has told of more since
	}
	left := b.remaining - (b.admittedLocked() + b.reservedLocked() - b.spentBase)
	passed := float64(max(now-b.answeredAt, 0))
	switch {
	case b.length > 0: // a window gains nothing
	case b.live:
		left += int64(min(float64(b.trickle)*passed/1e12, float64(b.capacity)))
	default: // it fills until then, as far as is known here
		left += int64(float64(b.capacity-b.remaining) * passed / float64(b.resetAt-b.answeredAt))
	}
	return min(max(left, here), b.capacity)
}

// resetInLocked returns the time until the whole bucket is full, given the units left now; 0 where nothing was told.
func (b *Bucket) resetInLocked(now, left int64) int64 {
	told := max(b.resetAt-now, 0)
	if b.answeredAt == 0 || b.capacity == 0 || !b.refills() || b.Rate.Units == 0 {
		return told
	}
	lacks := b.Rate.Takes(max(b.capacity-left, 0))
	if left > 0 {
		return lacks
	}
	return max(lacks, told) // it may be overdrawn
}
