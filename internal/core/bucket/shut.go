package bucket

// A denial that an earlier one made certain takes no mutex: the bucket notes until when there is certainly no unit.
// Units that come back show in stock.due. Any other code that makes a unit available must call reopenLocked.

// Shut denies one unit, whose Take failed, without the mutex where an earlier denial made it certain. On false the
// caller calls Ask. It is not for a time out of contact. The verdict is as Ask's, but for units granted meanwhile.
func (b *Bucket) Shut(now int64) (Verdict, bool) {
	s := b.stock.shared.Load()
	if now >= s.shutUntil.Load() || b.stock.due() != 0 {
		return Verdict{}, false
	}
	b.refused.Add(1)
	return Verdict{Outcome: Denied, RetryAfter: max(s.shutRetry.Load()-now, 1)}, true
}

// Reopen ends a denial that was noted as certain.
func (b *Bucket) Reopen() {
	defer b.enter().leave()
	b.reopenLocked()
}

func (b *Bucket) reopenLocked() {
	if s := b.stock.shared.Load(); s != &unshared {
		s.shutUntil.Store(0)
	}
}

// shutLocked notes how long one unit is denied for certain. That is while the store said to deny, the trickle has
// brought no whole token, and no window turns.
func (b *Bucket) shutLocked(now int64, lost bool) {
	if lost || b.slots || b.paced || b.patients() > 0 || now >= b.denyUntil || b.least > 1 {
		return
	}
	retry := now + b.retryAfterLocked(now, 1, false)
	until := min(retry, b.deniesUntilLocked())
	if b.length > 0 {
		until = min(until, b.turnAt)
	}
	s := b.stock.common()
	s.shutRetry.Store(retry)
	s.shutUntil.Store(until)
}
