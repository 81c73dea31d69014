package bucket

import "github.com/f4ee788f/quota/internal/core/limit"

// Foresee is what would become of n units, as far as it is known here: Wait where the request would ask, or wait its
// turn. Nothing is taken or counted.
func (b *Bucket) Foresee(now, n int64, lost bool) Verdict {
	b.mu.Lock()
	defer b.leave()
	switch {
	case b.counting || b.hasLocked(now, n):
		return Verdict{Outcome: Admitted}
	case lost && b.overLocked(now):
		if b.onOutage == limit.OutageOpen {
			return Verdict{Outcome: Admitted}
		}
		return Verdict{Outcome: Denied, RetryAfter: outageWait}
	case b.hopelessLocked(n):
		return Verdict{Outcome: Denied}
	case b.queues && !(lost && b.stuckLocked()):
		return Verdict{Outcome: Wait}
	case b.deniesLocked(now, n, lost):
		return Verdict{Outcome: Denied, RetryAfter: b.retryAfterLocked(now, n, lost)}
	}
	return Verdict{Outcome: Wait}
}

// hasLocked reports whether n units are there at now, or would be if what trickled in were credited.
func (b *Bucket) hasLocked(now, n int64) bool {
	if b.patients() > 0 {
		return false // those who wait their turn come first
	}
	missing := n - max(b.idle()-b.debt, 0)
	return missing <= 0 || b.live && b.trickle > 0 && n <= b.room && now >= b.last+b.trickleTakesLocked(missing)
}

// Fits ends the denial of large requests that the store found too little for: what a request of the same call had in hand, which
// comes back, may have been what was missing.
func (b *Bucket) Fits() {
	b.mu.Lock()
	defer b.leave()
	if b.least > 0 {
		b.own().least, b.denyUntil = 0, 0
	}
}
