package bucket

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

const (
	// margin is taken off each term for the time that clocks and loops lose.
	margin = 2_000
	// quota is the window length, in microseconds, from which requests wait at an edge. A request that comes while the
	// edge is under way waits a part of a round trip instead of being denied. Shorter windows have too many edges to
	// wait at each.
	quota = 60_000_000
	// The answer to a log's renewal may take as long as so many of the last round trips, and of long ones. The first one
	// may take firstWithin, in microseconds.
	tripsTo     = 4
	longTripsTo = 2
	firstWithin = 20_000
	// raised is by how much a grant's Reset may have become longer on its way: messages have whole milliseconds.
	raised = 1_000
)

// Apply puts a grant to use and returns the requests that it decided. The caller runs their Done. A grant of another
// number than the renewal under way is ignored.
func (b *Bucket) Apply(now int64, g lease.Grant) []*Waiter {
	defer b.enter().leave()
	return b.applyLocked(now, g)
}

func (b *Bucket) applyLocked(now int64, g lease.Grant) []*Waiter {
	if b.ask == nil || g.Number != b.ask.Number {
		return nil
	}
	p := b.ask
	b.ask = nil
	b.heardLocked(p)
	if p.Final {
		b.void -= p.void
		b.generation = 0 // nothing is held that a store could forget
		if b.refills() {
			b.fallback, b.expires, b.lasts = float32(g.Fallback), p.sentAt, 0
		}
		return b.serveLocked(now)
	}
	b.answeredAt = p.sentAt
	p.shrink(&g)
	if b.exact {
		b.last = now // the store took back what trickled while the answer was under way
	}
	have := b.refillLocked(now)
	b.enterWindowLocked(p, &g, have)
	b.restockLocked(p, &g)
	b.void -= p.void
	b.beginLeaseLocked(now, p, &g)
	b.denyLocked(now, p, &g)
	b.beginSpanLocked(now, p, &g)
	if until := b.untilLocked(); until > 0 && now >= until {
		b.expireLocked(now, false) // the answer took too long
	}
	served := b.serveLocked(now)
	b.levelLocked(b.stock.units() + b.stock.due())
	if b.slots {
		b.surplusLocked()
		return served
	}
	spare := min(p.Waiting-p.reserved, max(g.Tokens-p.reserved, 0))
	for _, w := range served {
		if w.verdict.Outcome == Admitted {
			spare -= w.Units
		}
	}
	if spare > 0 && b.stock.units()+b.waitingLocked().gathered > 0 {
		// The store counts units that requests waited for as spent. A request that was too large for the grant, or
		// waits no more, left them here. They are in no sum until they are reported as held.
		b.early = true
	}
	b.putAsideLocked(now)
	return served
}

// heardLocked notes that the store knows what the renewal told it.
func (b *Bucket) heardLocked(p *pendingRenewal) {
	b.free = b.free && !b.slots && b.admittedLocked()+b.owedLocked() > p.told // some came while the answer was on its way
	b.failed, b.met, b.alone = false, true, false
	if b.slots {
		b.unleased = 0
	}
	b.notNobodysLocked(p.nobodys)
	if p.told/said != b.answered()/said || p.denied/said != b.answeredDenied()/said {
		b.turns = -1 // a conversation whose counts are smaller
	}
	b.untold, b.untoldDenied = b.toldAdmitted-p.told, b.toldDenied-p.denied
	b.granted = 0
}

// shrink cuts a grant to the limit, if that changed while the answer was on its way.
func (p *pendingRenewal) shrink(g *lease.Grant) {
	g.Tokens, g.Pile, g.Fallback = p.stock.Of(g.Tokens), p.stock.Of(g.Pile), p.flow.Of(g.Fallback)
	g.Next, g.Trickle = p.stock.Of(g.Next), p.flow.Of(g.Trickle)
	if p.noNext {
		g.Next = 0
	}
}

// enterWindowLocked goes over to the grant's window, if the have units that are here belong to another. It sets p.Held
// to what the grant replaces, and the grant to the window that the bucket is in.
func (b *Bucket) enterWindowLocked(p *pendingRenewal, g *lease.Grant, have int64) {
	b.spans = b.spans || g.ValidFrom != 0 || g.ValidUntil != 0 || g.Next != 0
	over := p.Window != b.window // it went over to the next window meanwhile
	switch {
	case !over && b.length > 0 && g.ValidUntil <= b.window:
		// The store's clock is behind, and still in a window before. What is here stays, and there is no second part.
		g.Tokens, g.Next, g.DenyFor = p.Held, 0, 0
		g.ValidFrom, g.ValidUntil, g.Reset = b.window, b.window+b.length, max(b.turnAt-p.sentAt, 0)
	case over && g.ValidUntil == b.window:
		// The store had not: its grant for the next window counts.
		p.Held = b.turned
		g.Tokens, g.Next = g.Next, 0
		g.ValidFrom, g.ValidUntil = g.ValidUntil, g.ValidUntil+b.length
		g.Reset += b.length
	case over && g.ValidFrom == b.window:
		p.Held = b.turned // it was granted ahead, and this grant replaces it
	case g.ValidFrom != b.window:
		b.stock.credit(-have) // what is left of the old window is void
		p.Held, b.debt, b.offered = 0, 0, 0
		b.beginWindowLocked(g.ValidFrom)
		b.outside += max(b.admittedLocked()-b.toldAdmitted, 0) // committed while the answer was on its way, of the old window
	}
}

// restockLocked replaces the units that the renewal gave back by the grant's, less those spent since.
func (b *Bucket) restockLocked(p *pendingRenewal, g *lease.Grant) {
	offered := b.offered
	b.offered = 0
	b.early = b.early || b.length > 0 && p.Held-g.Tokens >= cut
	if b.slots {
		// All slots but those it gave back stay, even if they came back since.
		b.debt = b.stock.credit(p.inUse + g.Tokens - b.stock.credited())
		return
	}
	b.debt += b.stock.credit(offered + g.Tokens - p.Held)
	b.chargeLocked()
	if b.debt > 0 {
		b.debt = b.stock.credit(-b.debt)
	}
}

// beginLeaseLocked begins the lease that was granted.
func (b *Bucket) beginLeaseLocked(now int64, p *pendingRenewal, g *lease.Grant) {
	b.live, b.ended, b.unchecked = true, false, false
	b.granted = g.Most()
	b.lasts = uint32(min(g.TTL, math.MaxUint32))
	if b.logs {
		trip := now - p.sentAt // the next renewal says Within by it
		b.lasts = uint32(min(tripsTo*trip, max(longTripsTo*trip, lease.FirstTerm), lease.LongestWithin) + 3*margin)
	}
	b.trickle, b.room, b.last = g.Trickle, g.Pile, now
	b.turned = 0
	if b.refills() {
		b.fallback = float32(g.Fallback)
	}
	if !b.slots {
		// Units granted for no waiting request count as unspent in the store until it hears of them. For all it knows,
		// the room of those spent may be filled up again.
		b.room += max(g.Tokens-p.Waiting, 0)
	}
	b.expires = p.sentAt + max(g.TTL-margin, 0)
	b.renewAt = p.sentAt + g.TTL - b.leadLocked(g.TTL)
	b.generation, b.remaining, b.resetAt = g.Generation, g.Remaining, now+g.Reset
	b.spentBase = p.told + min(p.Waiting, g.Tokens) // units that requests waited for are in no remainder
}

// denyLocked notes how long the grant says to deny.
func (b *Bucket) denyLocked(now int64, p *pendingRenewal, g *lease.Grant) {
	b.undenyLocked()
	b.least = 0
	if g.DenyFor > 0 {
		b.denyUntil = now + g.DenyFor
	}
	if g.DenyFor == lease.TooLarge {
		b.least = int32(p.Largest) // there was too little for that: requests for less that came meanwhile go on waiting
	}
	if g.UnitIn > g.DenyFor {
		b.unitAt = now + g.UnitIn
	}
	if g.ValidUntil-g.ValidFrom >= quota && g.DenyFor <= max(g.Reset, 1_000) {
		// A request after the edge is not one of the window before: it waits for the new one. The store's edge is as
		// far from now as it said, less the time that its answer took, about half a round trip.
		b.denyUntil = min(b.denyUntil, now-(now-p.sentAt)/2+g.Reset)
	}
}

// beginSpanLocked notes what the grant says of windows and slots.
func (b *Bucket) beginSpanLocked(now int64, p *pendingRenewal, g *lease.Grant) {
	if !b.spans {
		return
	}
	if b.next > 0 && g.Next == 0 {
		b.early = true // the store keeps its part until it knows that this was heard, and the lease might lapse without a word
	}
	b.length, b.next = g.ValidUntil-g.ValidFrom, g.Next
	b.heard = p.Number
	b.turnAt, b.beginAt = p.sentAt+g.Reset-raised-drift(g.Reset), now+g.Reset+drift(g.Reset)
	if b.slots {
		b.dry = g.DenyFor > 0 || g.Remaining <= 0
		b.share = endless
		if g.Fallback > 0 { // in whole slots: a fraction of one is one in that fraction of the grants
			b.share = (g.Fallback + limit.Micro - 1 - lease.Jitter(b.began(), b.number, limit.Micro)) / limit.Micro
		}
	}
	b.edgeLocked(now)
}
