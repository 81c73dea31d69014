package bucket

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// Apply puts a grant to use and returns the requests that it decided, whose Done
// the caller runs. A grant of another number than the one under way is ignored.
func (b *Bucket) Apply(now int64, g lease.Grant) []*Waiter {
	b.mu.Lock()
	defer b.leave()
	return b.applyLocked(now, g)
}

func (b *Bucket) applyLocked(now int64, g lease.Grant) []*Waiter {
	if b.ask == nil || g.Number != b.ask.number {
		return nil
	}
	p := *b.ask
	b.endAskLocked()
	b.free = b.free && !b.slots && b.admittedLocked()+b.owedLocked() > p.told // some came while the answer was on its way
	b.failed, b.met = false, true
	if b.slots {
		if b.unleased != 0 {
			b.own().unleased = 0
		}
	}
	b.notNobodysLocked(p.nobodys)
	if p.told/said != b.answered()/said || p.denied/said != b.answeredDenied()/said {
		b.turns = -1 // a conversation whose counts are smaller
	}
	b.hearLocked(p.told, p.denied)
	b.granted = 0
	if p.alone {
		b.alone = inContact
	}
	if p.final {
		b.heardLocked(p.void)
		b.generation = 0 // nothing is held that a store could forget
		return b.serveLocked(now)
	}
	b.answeredAt = p.sentAt
	g.Tokens, g.Pile, g.Fallback = p.shrunkStock.of(g.Tokens), p.shrunkStock.of(g.Pile), p.shrunkFlow.of(g.Fallback)
	g.Next, g.Trickle = p.shrunkStock.of(g.Next), p.shrunkFlow.of(g.Trickle)
	if p.noNext {
		g.Next = 0
	}
	have := b.refillLocked(now)
	if g.ValidFrom != 0 || g.ValidUntil != 0 || g.Next != 0 {
		b.spans = true
	}
	over := p.window != b.window // it went over to the next window meanwhile
	switch {
	case over && g.ValidUntil == b.window:
		// The store had not: what it says of the next window is what counts.
		g.Tokens, g.Next, p.stock = g.Next, 0, b.turned
		g.ValidFrom, g.ValidUntil = g.ValidUntil, g.ValidUntil+b.length
		g.Reset += b.length
	case over && g.ValidFrom == b.window:
		p.stock = b.turned // it was granted ahead, and this grant replaces it
	case g.ValidFrom != b.window:
		// Another window: what is left of the old one is void.
		b.stock.credit(-have)
		p.stock = 0
		b.oweLocked(0)
		b.beginWindowLocked(g.ValidFrom)
		b.own().outside += max(b.admittedLocked()-b.toldAdmitted, 0) // committed while the answer was on its way: of the window before
	}
	if b.slots {
		// All but what it gave back stays, whatever became of it since.
		b.unofferedLocked()
		b.oweLocked(b.stock.credit(p.inUse + g.Tokens - b.stock.credited()))
	} else {
		// The store took the held stock back and granted anew; what was spent of
		// it meanwhile has to come out of the new grant.
		b.oweLocked(b.debt + b.stock.credit(g.Tokens-p.stock))
		b.dueNowLocked()
		if b.debt > 0 {
			b.oweLocked(b.stock.credit(-b.debt))
		}
	}
	b.live = true
	b.granted = g.Most()
	b.lasts = uint32(min(g.TTL, math.MaxUint32))
	b.trickle, b.room = g.Trickle, g.Pile
	if !b.slots {
		// The store counts as unspent, until it hears of it, what it granted for no request that waited: what is
		// spent of that may be filled up again, for all it knows.
		b.room += max(g.Tokens-p.waited-p.reserved, 0)
	}
	b.last = now
	b.heardLocked(p.void)
	b.expires = p.sentAt + max(g.TTL-margin, 0)
	b.renewAt = p.sentAt + g.TTL - b.leadLocked(g.TTL)
	b.undenyLocked()
	if g.DenyFor > 0 {
		b.denyUntil = now + g.DenyFor
	}
	if g.UnitIn > g.DenyFor {
		b.own().unitAt = now + g.UnitIn
	}
	if b.spans {
		r := b.own()
		r.length, r.next, r.turnAt = g.ValidUntil-g.ValidFrom, g.Next, p.sentAt+g.Reset
		r.share, r.rest = int64(float64(g.Fallback)*float64(b.length)/1e12), 0
	}
	if b.length >= quota && g.DenyFor <= max(g.Reset, 1_000) {
		// A request after the edge is not one of the window before: it waits for the new one. The store's edge
		// is as far from now as it said, less the time that its answer took: about half of all.
		b.denyUntil = min(b.denyUntil, now-(now-p.sentAt)/2+g.Reset)
	}
	if b.slots {
		b.dry = g.DenyFor > 0 || g.Remaining <= 0
		b.shareLocked(g.Fallback)
		defer b.surplusLocked() // once those who wait are served
	}
	if b.length > 0 && b.capacity > 0 {
		b.own().rest = max(int64(float64(g.Remaining)*float64(b.share)/float64(b.capacity))-g.Tokens, 0)
	}
	b.ended = false
	b.generation = g.Generation
	b.remaining = g.Remaining
	b.unchecked = false
	b.resetAt = now + g.Reset
	b.edgeLocked(now)
	b.spentBase = p.told + min(p.waited+p.reserved, g.Tokens) // what requests waited for is in no remainder
	if b.least != 0 {
		b.own().least = 0
	}
	if g.DenyFor == lease.TooLarge {
		b.own().least = int32(p.largest) // there was something, and too little for that: who asked for less meanwhile goes on waiting
	}
	served := b.serveLocked(now)
	b.levelLocked(b.stock.units() + b.stock.due())
	spare := min(p.waited, max(g.Tokens-p.reserved, 0))
	for _, w := range served {
		if w.verdict.Outcome == Admitted {
			spare -= w.Units
		}
	}
	if !b.slots && spare > 0 && b.stock.units()+b.gatheredLocked() > 0 {
		// The store takes what requests waited for as spent. One that was too large for what
		// came, or waits no more, left it here: it is in no sum until it is reported as held.
		b.early = true
	}
	b.putAsideLocked(now)
	return served
}

// Fail says that the server could not be reached: the next renewal follows when
// the caller makes it, and requests that wait are decided as in an outage.
func (b *Bucket) Fail(now int64) []*Waiter {
	b.mu.Lock()
	defer b.leave()
	b.failed = true
	if b.offered > 0 {
		b.stock.credit(b.offered) // as any lease that is live, it goes on
		b.unofferedLocked()
	}
	b.turnLocked(now, true)
	b.refillLocked(now)
	served := b.serveLocked(Never)
	if b.queue == nil {
		return served
	}
	stay := b.live && !b.stuckLocked()
	waiting := b.queue.waiters[:0]
	for _, w := range b.queue.waiters {
		switch {
		case w.patient && stay:
			waiting = append(waiting, w)
			continue
		case !b.overLocked(now):
			b.stock.refuse(w.Units)
			w.verdict = Verdict{Outcome: Denied, RetryAfter: b.retryAfterLocked(now, w.Units, true)}
		default:
			w.verdict = b.outageLocked(w.Units)
		}
		b.leaveLocked(w)
		served = append(served, w)
	}
	clear(b.queue.waiters[len(waiting):])
	b.queue.waiters = waiting
	b.emptyLocked()
	return served
}

// Expire empties the cell when its lease has ended, so that a hot path cannot go
// on spending it; the owner's loop calls it when a lease was not renewed in time.
func (b *Bucket) Expire(now int64, lost bool) {
	b.mu.Lock()
	defer b.leave()
	if !b.counting {
		b.foldLocked()
		b.expireLocked(now, lost)
	}
}

// undenyLocked ends what the store said of denials.
func (b *Bucket) undenyLocked() {
	b.denyUntil = 0
	if b.unitAt != 0 {
		b.own().unitAt = 0
	}
	b.reopenLocked()
}
