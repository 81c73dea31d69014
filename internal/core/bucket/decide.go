package bucket

import "github.com/f4ee788f/quota/internal/core/limit"

// Outcome is what a decision came to.
type Outcome uint8

const (
	Admitted Outcome = iota + 1
	Denied
	Wait    // only a renewal can tell, or the request's turn has not come: enqueue a Waiter
	Rematch // the bucket is no more: match again
)

// Verdict is an outcome, and for a denial how long to stay away.
type Verdict struct {
	Outcome    Outcome
	RetryAfter int64 // microseconds; 0 when nothing better than "later" is known
	Attend     bool  // the owner is to look at the bucket before its time
	Never      bool  // of a denial: the whole bucket never has as many units
	Here       bool  // of an admission: the units were taken here
	Until      int64 // and are to be in time; see InTime
	Window     int64 // that these are of; 0 without windows
}

// Ask decides what Take(n) could not. It refills the bucket and tries again. lost says that the server is out of
// contact, patient that the request waits its turn rather than be denied. On Wait the caller enqueues a Waiter.
func (b *Bucket) Ask(now, n int64, lost, patient bool) Verdict {
	defer b.enter().leave()
	b.foldLocked()
	ended := !b.live
	b.expireLocked(now, lost)
	again := ended && b.live // out of contact it goes on: the owner, who was done with it, has to see it end
	have := int64(0)
	if b.patients() == 0 { // those who wait their turn come first
		if have = b.refillLocked(now); have > 1 {
			b.mayWait = mostTurns
		}
		if b.Try(n) {
			b.levelLocked(have - n) // gone already
			b.putAsideLocked(now)
			b.noteLowLocked(now, have)
			if b.stock.units()+b.aside() == 0 {
				b.shutLocked(now, lost) // or the next would open it to be denied
			}
			return Verdict{Outcome: Admitted, Attend: b.early || again, Here: true, Until: b.untilLocked(), Window: b.window}
		}
	}
	v := b.withoutLocked(now, n, lost, patient || b.queues)
	b.countLocked(&v, now, n, lost)
	if v.Outcome == Denied {
		if !v.Never && !lost {
			if b.paced {
				b.noteLowLocked(now, have) // it asks for a larger trickle, if there is one
			}
			b.shutLocked(now, lost)
		}
		v.Attend = b.early || again
	}
	return v
}

// withoutLocked decides about n units that are not here. It counts nothing.
func (b *Bucket) withoutLocked(now, n int64, lost, patient bool) Verdict {
	switch {
	case lost && b.overLocked(now):
		if b.onOutage == limit.OutageOpen {
			return Verdict{Outcome: Admitted}
		}
		return Verdict{Outcome: Denied, RetryAfter: outageWait}
	case b.hopelessLocked(n): // asking would bring all units here, where they are of no use
		return Verdict{Outcome: Denied, Never: true}
	case !b.met && int64(b.touched)+n <= int64(b.credit):
		return Verdict{Outcome: Admitted} // on credit
	case patient && !(lost && b.stuckLocked()), lost && b.comesLocked(now, n):
		return Verdict{Outcome: Wait}
	case lost, now < b.deniesUntilLocked() && n >= int64(b.least), b.paced && b.live && b.trickle > 0:
		// The store is away, said so, or need not be asked, for the trickle alone says when the units come.
		return Verdict{Outcome: Denied, RetryAfter: b.retryAfterLocked(now, n, lost)}
	}
	return Verdict{Outcome: Wait}
}

// countLocked puts a decision of withoutLocked into effect.
func (b *Bucket) countLocked(v *Verdict, now, n int64, lost bool) {
	switch {
	case v.Outcome == Denied:
		b.refused.Add(n)
		if v.Never {
			b.hopeless += n
		}
	case v.Outcome == Admitted && lost: // by on_outage; the store is to know as soon as it can
		b.admitFreeLocked(n)
		v.Attend = !b.free
		b.free = true
		if b.slots {
			b.unleased += n
		}
	case v.Outcome == Admitted: // on credit; the first renewal tells, and the store takes it out
		if b.touched == 0 {
			b.expires = now + touchWithin
		}
		b.touched += uint8(n)
		b.admitLocked(n)
		v.Attend = true
	}
}

// Foresee returns the verdict that a request for n units would get, as far as is known here. It counts nothing.
func (b *Bucket) Foresee(now, n int64, lost bool) Verdict {
	defer b.enter().leave()
	if lost && b.live {
		b.fallBackLocked(now)
	}
	missing := n - max(b.idle()-b.debt, 0)
	comes := b.live && b.trickle > 0 && n <= b.room && now >= b.last+b.trickleTakesLocked(missing)
	comes = comes || lost && !b.live && n == 1 && b.fallsBackLocked()
	if b.counting || b.patients() == 0 && (missing <= 0 || comes) { // those who wait their turn come first
		return Verdict{Outcome: Admitted}
	}
	return b.withoutLocked(now, n, lost, b.queues)
}

// touchWithin is how long the renewal that reports units on credit may wait for others to go with, in microseconds. Once
// there is no more credit a request waits for it, and it goes at once.
const touchWithin = 200_000

// hopelessLocked reports whether n units are more than the whole bucket ever has.
func (b *Bucket) hopelessLocked(n int64) bool {
	return b.capacity > 0 && n > b.capacity+b.Rule.Limit.Borrow
}

// outageWait is how long a request that is denied because the server is away should stay away, in microseconds.
const outageWait = 1_000_000

// overLocked reports whether no lease goes on while the server is away: none is live, or it brings nothing any more.
func (b *Bucket) overLocked(now int64) bool {
	switch {
	case !b.live:
		return true
	case now < b.expires:
		return false
	case b.length > 0:
		return b.comingLocked() == 0
	}
	return b.stuckLocked()
}

// stuckLocked reports whether nothing comes to those who wait their turn while the server is away.
func (b *Bucket) stuckLocked() bool {
	if b.slots {
		return b.stock.inUse() == 0
	}
	return b.trickle == 0
}

// askAgain is the longest time to deny without asking, whatever the store said, in microseconds. A bucket that was
// exhausted until its window's end may have units again: unused by another agent, cancelled, or corrected.
const askAgain = 60_000_000

// deniesUntilLocked returns until when units that are not here are denied because the store said so. To a lease with a
// trickle it does not say so for longer than the lease lasts.
func (b *Bucket) deniesUntilLocked() int64 {
	if b.live && b.trickle > 0 {
		return b.denyUntil
	}
	return min(b.denyUntil, b.lastAsk+askAgain)
}

// undenyLocked ends the denial that the store asked for.
func (b *Bucket) undenyLocked() {
	b.denyUntil, b.unitAt = 0, 0
	b.reopenLocked()
}

// Fits ends the denial of large requests that the store found too little for: missing units may have come back.
func (b *Bucket) Fits() {
	defer b.enter().leave()
	if b.least > 0 {
		b.least, b.denyUntil = 0, 0
	}
}

// Refuse counts n units as denied, whatever the bucket holds. It is no demand: no lease could serve them.
func (b *Bucket) Refuse(n int64) {
	defer b.enter().leave()
	b.refused.Add(n)
	b.hopeless += n
}

// Admit counts n units as admitted, whether or not they are there, for an operator's switch that says so.
func (b *Bucket) Admit(n int64) {
	defer b.enter().leave()
	b.admitFreeLocked(n)
}

// admitLocked admits n units, whether or not they are there. They never show in tokens, so no one else can take them.
func (b *Bucket) admitLocked(n int64) {
	b.stock.admit(n)
	if b.slots {
		b.debt += n // when they come back they are nobody's
	}
}

// admitFreeLocked is admitLocked for a request that another limit may still deny. The n units are taken from nobody,
// and if they come back they are nobody's again.
func (b *Bucket) admitFreeLocked(n int64) {
	b.admitLocked(n)
	if !b.slots && !b.counting {
		b.nobodys += n
	}
}
