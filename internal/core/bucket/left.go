package bucket

// Left returns about how many units the bucket as a whole has left at now: what the
// server last told, less what was spent here since and with what trickled in here. What others
// spent since is not in it: it is as old as the lease, a term at most.
func (b *Bucket) Left(now int64) int64 {
	b.mu.Lock()
	defer b.leave()
	b.foldLocked()
	return b.leftLocked(now)
}

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

// resetInLocked is how long it takes until all is back, of which so much is left; 0 where nothing was told. What lies here is not missing, whatever
// the store lent.
func (b *Bucket) resetInLocked(now, left int64) int64 {
	told := max(b.resetAt-now, 0)
	if b.answeredAt == 0 || b.capacity == 0 || !b.refills() || b.Rate.Units == 0 {
		return told
	}
	lacks := b.refillTakes(max(b.capacity-left, 0))
	if left > 0 {
		return lacks
	}
	return max(lacks, told) // it may be overdrawn
}

// Capacity is the most units that the whole bucket holds.
func (b *Bucket) Capacity() int64 {
	b.mu.Lock()
	defer b.leave()
	return b.capacity
}

// Refuse counts n units as denied whatever the bucket holds. No lease could serve
// them, so the server is not told of them as demand.
func (b *Bucket) Refuse(n int64) {
	b.mu.Lock()
	defer b.leave()
	b.stock.refuse(n)
	b.own().hopeless += n
}
