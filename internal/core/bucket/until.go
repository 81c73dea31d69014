package bucket

// A unit of a window must not be spent in the next one, nor one of a strict limit once others may have it. The owner
// empties the cell in time, but it may be late: busy, or stopped. So requests for such limits look at the clock.

// Until is when units that are here may no longer be spent, microseconds of the bucket's clock; 0 for never. It takes no
// mutex.
func (b *Bucket) Until() int64 { return b.stock.shared.Load().until.Load() }

// InTime ends a Take or Try that had n units. It reports whether they were taken in time, and puts them back if not.
// On false the caller asks, as after a Take without success. until is what Until said before them: the next window may
// have begun since, which has none of these units. clock is read where a limit is limit.Limit.Timed.
func (b *Bucket) InTime(n, until int64, clock func() int64) bool {
	if until == 0 {
		return true
	}
	now := clock()
	if now < until {
		return true
	}
	b.putBackLate(n, now)
	return false
}

// putBackLate is PutBack for units that were taken too late, as of now. If another request went over to the next window
// since, they are nobody's.
func (b *Bucket) putBackLate(n, now int64) {
	defer b.enter().leave()
	b.back.Add(n)
	if b.live && b.length > 0 && now < b.turnAt {
		b.stock.forfeit(n)
		b.outside -= n // they were told of in their own window, or never will be
	}
}

// untilLocked is when the units that are here may no longer be spent; 0 for never.
func (b *Bucket) untilLocked() int64 {
	switch {
	case !b.timed:
		return 0
	case !b.live:
		return 1
	case b.length > 0:
		return b.turnAt
	}
	return b.keptLocked()
}

// drift is by how much the clocks of an agent and the store may have come apart in so many microseconds.
func drift(micros int64) int64 { return max(micros, 0) / 1_000 }
