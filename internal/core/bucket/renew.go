package bucket

import (
	"cmp"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// pendingRenewal is the renewal under way, with what the bucket has to know when its answer comes.
type pendingRenewal struct {
	lease.Renewal       // as it was sent, but for Held, of which Follow may have cut some
	sentAt        int64 // the term counts from here
	told, denied  int64 // units admitted and denied in all, as it said
	reserved      int64 // units in hand that it gave back as held and asked for again
	inUse         int64 // slots that stay here whatever the answer
	nobodys       int64 // as of then: the store took them out, so any that come back are the bucket's
	void          uint32

	// How far the limit shrank since it was sent.
	stock, flow limit.Fraction
	noNext      bool // windows begin at other times since
}

// Renew composes the next renewal, without strain.
func (b *Bucket) Renew(now int64, final bool) lease.Renewal {
	defer b.enter().leave()
	return b.renewLocked(now, final, 1)
}

// renewLocked composes the next renewal, under so much strain. It fills in everything but the bucket's key, the limit
// and the holder. A final one ends the lease and gives back what is left. An unanswered renewal is followed by the
// next. The store need not have seen it: counts are totals, and the units held are those that the agent has now.
func (b *Bucket) renewLocked(now int64, final bool, strain int64) lease.Renewal {
	if b.number == 0 {
		// Higher than any number of an earlier life of this bucket in this epoch.
		b.number, b.turns = max(now, 1)-1, -1
	}
	held, inUse := b.heldLocked(now, final)
	reserved := int64(0)
	if !final {
		reserved = min(b.reservedLocked(), limit.MaxUnits) // on_outage may have given out more
	}
	wanted, largest := b.wantedLocked()
	// No bucket has more than MaxUnits, however much is waited for: those who wait are told when it is gone.
	waiting := max(min(wanted, limit.MaxUnits-reserved), 0)
	before := b.toldAdmitted + b.toldDenied
	b.tellLocked(now)
	r := lease.Renewal{
		Number:     b.number,
		Began:      b.began(),
		Admitted:   sayable(b.toldAdmitted, b.answered()),
		Denied:     sayable(b.toldDenied, b.answeredDenied()),
		Told:       sayable(b.answered(), b.answered()),
		Held:       min(held+reserved, limit.MaxUnits),
		Waiting:    waiting + reserved,
		Largest:    max(largest, min(reserved, 1)), // any part of the reserved units is of use
		Reserved:   min(reserved+b.waitingLocked().reserves, waiting+reserved),
		InUse:      min(inUse, limit.MaxUnits),
		Final:      final,
		Strain:     strain,
		Alone:      b.alone,
		Window:     b.window,
		Heard:      b.heard,
		Generation: b.generation,
	}
	r.Void, r.VoidAgo = b.surelyVoidLocked(now)
	if b.answeredAt > 0 {
		r.Elapsed = max(now-b.answeredAt, 0)
	}
	if b.logs {
		r.Within = cmp.Or(b.term(), firstWithin)
	}
	switch {
	case !b.exact:
	case final:
		b.level -= b.level % limit.Micro
	default:
		r.Fraction = b.level % limit.Micro
	}
	if b.live {
		r.Trickle = b.trickle
		r.ExpiresIn = max(b.expires-now, 0)
	}
	b.ask = &pendingRenewal{
		Renewal: r, sentAt: now, told: b.toldAdmitted, denied: b.toldDenied,
		reserved: reserved, inUse: inUse, nobodys: b.nobodys, void: b.void,
	}
	b.sentLocked(now, before, &r)
	return r
}

// heldLocked takes units out of the cell if the renewal gives them back: a final one does, and so does one of slots. It
// returns the units held, without reserved ones, and the slots that stay here whatever the answer.
func (b *Bucket) heldLocked(now int64, final bool) (held, inUse int64) {
	switch {
	case b.slots:
		held = b.offerLocked(final)
		return held, b.stock.credited()
	case final:
		held = b.refillLocked(now)
		held -= b.stock.credit(-held) // before admitted is read: what is spent until here counts as spent
		b.chargeLocked()              // no lease follows that could be charged
		return held, 0
	}
	here := b.refillLocked(now)
	if b.exact && b.length == 0 {
		// What the answer takes away must not be spent before it is there.
		b.offered += here - b.stock.credit(-here)
		here = b.offered
	}
	have := here + b.waitingLocked().gathered
	b.deferLocked(now)
	// Debt beyond that shows in the admitted units: the store takes it out, once.
	b.debt = min(b.debt, have)
	return have - b.debt, 0
}

// tellLocked brings the conversation, and the counts that the store is told, up to now.
func (b *Bucket) tellLocked(now int64) {
	admitted, denied := max(b.admittedLocked()-b.toldAdmitted, 0), max(b.deniedLocked()-b.toldDenied, 0)
	b.toldAdmitted, b.untold = b.toldAdmitted+admitted, b.untold+admitted
	b.toldDenied, b.untoldDenied = b.toldDenied+denied, b.untoldDenied+denied
	b.number++
	b.turns++
	b.beginAnewLocked(now)
}

// sentLocked notes that a renewal was made. before is how many units were told until then.
func (b *Bucket) sentLocked(now, before int64, r *lease.Renewal) {
	if r.Final {
		b.live, b.trickle, b.room, b.ended = false, 0, 0, false
		b.offered = 0
	}
	b.gone = r.Final
	b.unheard = false
	b.checked = b.toldAdmitted + b.toldDenied
	if elapsed := now - b.lastAsk; elapsed >= earlyEvery {
		b.demand = float32(float64(b.checked-before) * 1e6 / float64(elapsed))
	}
	b.lastAsk, b.looked, b.unchecked = now, 0, false
	b.early, b.stopped = false, false
	b.strain = strainOf(r.Strain)
}

// said is the most units that a conversation may be about and still go on. The protocol's counts are below twice that.
const said = 1 << 52

// sayable returns n as the conversation says it, less what earlier conversations said: counts are bounded.
func sayable(n, answered int64) int64 { return min(n-answered/said*said, 2*said-1) }

// deniedLocked returns the units denied so far that a lease could have served.
func (b *Bucket) deniedLocked() int64 { return b.refused.Load() - b.hopeless }

// began is the number of the first renewal of the conversation.
func (b *Bucket) began() int64 { return b.number - int64(b.turns) }

// beginAnewLocked begins another conversation when the last lease ended long ago. The store took that lease's units out
// of the bucket when it granted them. Once it has no record of the grant, it would take the spent ones out again, as an
// unknown holder's. So they are not reported any more. An agent that spent more than was granted reports all of it.
func (b *Bucket) beginAnewLocked(now int64) {
	spent := b.toldAdmitted - b.answered()
	if b.live || b.anewIn == 0 || spent <= 0 || spent > b.granted || now-b.expires < int64(b.anewIn)*1_000_000 {
		return
	}
	b.turns, b.granted, b.untold = 0, 0, 0
}
