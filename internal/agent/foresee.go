package agent

import "github.com/f4ee788f/quota/internal/limit"

// Foresee is what would become of one unit, as far as it is known here: Wait where the request would ask, or wait its
// turn. Nothing is taken or counted.
func (of *Bucket) Foresee(now int64, lost bool) Verdict {
	b := of.open(new(hand))
	defer b.close()
	switch {
	case b.counting || b.hasOneLocked(now):
		return Verdict{Outcome: Admitted}
	case lost && b.overLocked(now):
		if b.onOutage == limit.OutageOpen {
			return Verdict{Outcome: Admitted}
		}
		return Verdict{Outcome: Denied, RetryAfter: outageWait}
	case b.queues && !(lost && b.stuckLocked()):
		return Verdict{Outcome: Wait}
	case b.deniesLocked(now, 1, lost):
		return Verdict{Outcome: Denied, RetryAfter: b.retryAfterLocked(now, 1, lost)}
	}
	return Verdict{Outcome: Wait}
}

// hasOneLocked reports whether a unit is there at now, or would be if what trickled in were credited.
func (b *book) hasOneLocked(now int64) bool {
	switch {
	case b.patients() > 0:
		return false // those who wait their turn come first
	case b.idle() > b.debt:
		return true
	}
	return b.live && b.trickle > 0 && b.room > 0 && now >= b.last+b.trickleTakesLocked(1)
}

// Above returns the bucket of what the limit of e admits above itself for e's own values; nil where there is none yet.
func (r *Registry) Above(e *Entry) *Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := e.scope().beyond
	switch {
	case s == nil:
		return nil
	case len(s.names) == 0:
		return s.direct.Load()
	}
	return r.entryBytes(s, []byte(e.values()))
}
