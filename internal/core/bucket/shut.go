package bucket

// Denials are as many as a caller out of bounds likes. One that an earlier one made certain takes no mutex: the bucket notes until when there
// are no units for certain, and whoever has units come back is seen in what is due (stock), or ends it (reopen).

// Shut denies one unit, whose Take failed, without the mutex where an earlier denial made it certain. On false the caller asks Slow.
// It is not for a time without contact. The verdict is of the same moment as Slow's would be, but
// for units that the store grants meanwhile.
func (b *Bucket) Shut(now int64) (Verdict, bool) {
	s := b.shared.Load()
	if s == nil || now >= s.shutUntil.Load() || b.stock.due() != 0 {
		return Verdict{}, false
	}
	b.refused.Add(1)
	return Verdict{Outcome: Denied, RetryAfter: max(s.shutRetry.Load()-now, 1)}, true
}

// Reopen ends what was noted as denied for certain.
func (b *Bucket) Reopen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reopenLocked()
}

func (b *Bucket) reopenLocked() {
	if s := b.shared.Load(); s != nil {
		s.shutUntil.Store(0)
	}
}

// shutLocked notes how long one unit is denied for certain: the store said to deny, and until then no trickle brings a whole token and no
// window turns.
func (b *Bucket) shutLocked(now int64, lost bool) {
	if lost || b.slots || b.paced || b.patients() > 0 || now >= b.denyUntil || b.least > 1 {
		return
	}
	retry := now + b.retryAfterLocked(now, 1, false)
	if b.length > 0 {
		retry = min(retry, b.turnAt)
	}
	s := b.stock.common()
	s.shutRetry.Store(retry)
	s.shutUntil.Store(min(retry, b.deniesUntilLocked()))
}

// shutLastsLocked reports whether units are denied without the mutex.
func (b *Bucket) shutLastsLocked(now int64) bool {
	s := b.shared.Load()
	return s != nil && s.shutUntil.Load() > now
}

// patients returns how many requests wait their turn.
func (b *Bucket) patients() int {
	if s := b.shared.Load(); s != nil {
		return int(s.patient.Load())
	}
	return 0
}
