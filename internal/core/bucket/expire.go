package bucket

import "github.com/f4ee788f/quota/internal/core/lease"

// punctual is how late a running owner may come to the end of a window or a lease, in microseconds.
const punctual = 20_000

// tickLocked does what is due without a call. It ends a lease that is over, goes over to the next window, and serves
// requests whose turn came. late is the most units that may have been spent after the store no longer kept the lease,
// or after a window's end.
func (b *Bucket) tickLocked(now int64, lost bool) (served []*Waiter, late int64) {
	if b.counting {
		return nil, 0
	}
	if b.live && (now >= b.expires || b.length > 0 && now >= b.turnAt) {
		b.foldLocked()
		was := b.window
		over := now >= b.keptLocked()+punctual || b.length > 0 && now >= b.turnAt+punctual
		spent := b.admittedLocked() - b.toldAdmitted
		b.expireLocked(now, lost)
		if over && !b.live {
			late = spent
		}
		if b.window != was {
			served = b.serveLocked(Never) // those that came between the windows
		}
	}
	if b.patients() > 0 {
		b.refillLocked(now)
		served = append(served, b.serveLocked(Never)...)
	}
	return served, max(late, 0)
}

// expireLocked ends a lease whose term is over. It goes on while an answer is under way, and out of contact with its
// fallback. A strict one does not go on for longer than the store keeps it.
func (b *Bucket) expireLocked(now int64, lost bool) {
	b.turnLocked(now, lost)
	if lost {
		b.fallBackLocked(now)
	}
	if b.timed && !b.live {
		b.stock.credit(-b.stock.fold()) // what came back after its time
	}
	if !b.live || now < b.expires {
		return
	}
	kept := now < b.keptLocked()
	if (lost || b.ask != nil) && (kept || b.goesOn()) {
		return
	}
	if kept && b.holdsLocked() {
		b.early = true // its renewal is late by no more than the store waits for it
		return
	}
	b.voidLocked()
	b.ended = true
}

// goesOn reports whether the lease may go on when the store does not keep it any more. Of a window it ends with that.
func (b *Bucket) goesOn() bool { return !b.timed || b.length > 0 }

// holdsLocked reports whether anything would be lost with the lease.
func (b *Bucket) holdsLocked() bool { return b.trickle > 0 || b.idle() > 0 || b.reservedLocked() > 0 }

// keptLocked returns until when an unrenewed lease may go on all the same: the store keeps its share for a term more,
// or for lease.LongTerm. What a log granted counts as of the lease's end.
func (b *Bucket) keptLocked() int64 {
	if b.logs {
		return b.expires
	}
	return b.expires + min(b.term(), lease.LongTerm)/2
}

// voidLocked ends the lease: units left of it can no longer be spent.
func (b *Bucket) voidLocked() {
	b.bringLocked()
	if b.live = false; b.trickle > 0 && !b.alone {
		b.fallback = 0 // the store keeps it no longer than the trickle
	}
	b.trickle, b.room, b.debt, b.next = 0, 0, 0, 0
	if b.turned = 0; b.ask == nil {
		b.offered = 0 // else its answer replaces them
	}
	b.stock.credit(-b.foldLocked())
}

// Fail says that the server could not be reached. The next renewal follows when the caller makes it. Requests that wait
// are decided as in an outage.
func (b *Bucket) Fail(now int64) []*Waiter {
	defer b.enter().leave()
	b.failed = true
	b.loseLocked(now)
	if b.offered > 0 && b.slots {
		b.stock.credit(b.offered) // as any lease that is live, it goes on
		b.offered = 0
	}
	b.expireLocked(now, true)
	b.refillLocked(now)
	served := b.serveLocked(Never)
	return append(served, b.decideLocked(func(w *Waiter) Verdict {
		v := b.withoutLocked(now, w.Units, true, w.patient)
		b.countLocked(&v, now, w.Units, true)
		if v.Outcome == Wait && !w.patient {
			w.patient = true // its turn comes by the trickle
			b.mayWait--
			b.stock.common().patient.Add(1)
		}
		return v
	})...)
}

// Forget ends the lease without giving anything back: the server knows no such bucket. Requests go on waiting.
func (b *Bucket) Forget() {
	defer b.enter().leave()
	if b.counting {
		return
	}
	b.ask = nil
	b.generation, b.free, b.offered, b.fallback = 0, false, 0, 0
	b.undenyLocked()
	b.met = true // units admitted on credit stay admitted; no more are
	b.voidLocked()
}

// Skip gives up the renewal under way, which is older than one the store executed, and goes on with larger numbers.
func (b *Bucket) Skip(now int64) {
	defer b.enter().leave()
	b.ask = nil
	b.offered = 0
	b.number, b.turns = max(b.number+1<<20, now)-1, -1
}

// Drain takes out all units that are left, so that every later Take fails, and returns how many there were.
func (b *Bucket) Drain() int64 {
	defer b.enter().leave()
	const all = 1 << 62
	b.bringLocked()
	b.live, b.trickle, b.room = false, 0, 0
	b.foldLocked()
	return all - b.stock.credit(-all)
}

// Empty reports whether the bucket holds nothing that could be lost. It has no lease, no units, no renewal under way,
// no waiting request, and nothing in hand that may come back. Demand that the server was not told of goes with it: a
// lease that holds nothing lapses without a call.
func (b *Bucket) Empty() bool {
	defer b.enter().leave()
	if b.waiters != nil || b.pending.Load() != 0 || b.slots && b.stock.inUse() > 0 || b.onCreditLocked() {
		return false
	}
	return b.counting || !b.free && b.foldLocked() == 0 && b.ask == nil && !b.live
}
