package agent

// Denials are as many as a caller out of bounds likes. One that an earlier one made certain takes no mutex: the bucket notes until when there
// are no units for certain, and whoever has units come back is seen in what is due (stock), or ends it (reopen).

// Shut denies one unit, whose Take failed, without the mutex where an earlier denial made it certain. On false the caller asks Slow.
// It is not for a time without contact. The verdict is of the same moment as Slow's would be, but
// for units that the store grants meanwhile.
func (of *Bucket) Shut(now int64) (Verdict, bool) {
	s := of.seldom()
	if s == nil {
		return Verdict{}, false
	}
	if now >= s.shutUntil.Load() || s.due(of.at) != 0 {
		return Verdict{}, false
	}
	of.at.refused.Add(1)
	return Verdict{Outcome: Denied, RetryAfter: max(s.shutRetry.Load()-now, 1)}, true
}

// deniesForLocked returns until when one unit is denied for certain: the store said to deny, and until then no trickle brings a whole token and no
// window turns. At retry there may be one.
func (b *book) deniesForLocked(now int64, lost bool) (until, retry int64, ok bool) {
	if lost || b.slots || b.paced || b.patients() > 0 || now >= b.denyUntil || b.least > 1 {
		return 0, 0, false
	}
	retry = now + b.retryAfterLocked(now, 1, false)
	if b.length > 0 {
		retry = min(retry, b.turnAt)
	}
	return min(retry, b.deniesUntilLocked()), retry, true
}

// shutLocked notes how long one unit is denied for certain.
func (b *book) shutLocked(now int64, lost bool) {
	if until, retry, ok := b.deniesForLocked(now, lost); ok {
		s := b.rarely()
		s.shutRetry.Store(retry)
		s.shutUntil.Store(until)
	}
}

// reopenLocked ends that.
func (b *book) reopenLocked() {
	if s := b.seldom(); s != nil {
		s.shutUntil.Store(0)
	}
}

// reopen is reopenLocked, for those who do not hold the mutex.
func (of *Bucket) reopen() {
	if s := of.seldom(); s != nil && s.shutUntil.Load() > 0 {
		b := of.open(new(hand))
		defer b.close()
		b.reopenLocked()
	}
}

// shutLastsLocked reports whether units are denied without the mutex.
func (b *book) shutLastsLocked(now int64) bool {
	s := b.seldom()
	return s != nil && s.shutUntil.Load() > now
}
