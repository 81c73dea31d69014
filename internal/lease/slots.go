package lease

import "github.com/f4ee788f/quota/internal/limit"

// Slots are taken for as long as a request lasts, and never refill. A holder has
// those that its requests are in (in use) and some to spare; Level is what nobody has:
//
//	Level + what all live holders have = slots,  and so, while the level is not below zero,
//	in flight over all live holders ≤ slots
//
// A holder starts requests in its spare slots while a renewal is under way. So what a grant takes from
// its spare stays its own in the sums until it has renewed once more, and then
// says what it has indeed; what it gave up before it renewed is in neither, and free at once. When it does not renew
// until its place in the ring is over, all that
// it had is free again; should it renew after all, what it has in use is taken out once more,
// and the level may be below zero until enough requests end.
//
// Slots that lie idle with one holder are missed by the others, and every one that goes
// through the store costs two renewals. What is lost if a holder had its share of a slots to itself is Erlang's
// B(a, a), about 0.8 ÷ √a: a twentieth from 200 on, a quarter of five. So holders with large shares keep them, and renew for
// the term's sake; smaller ones keep an eighth of theirs idle and give back the rest at once.

const (
	// slotOwn is the share, in slots, from which on a holder has it to itself.
	slotOwn = 200
	// slotStart is how many spare slots a holder with little in flight may have while most are free.
	slotStart = 16
	// How long a holder denies for which no slot was free, in microseconds: at least part of a round trip, as long as it
	// takes one of its own to come back, and so that all holders together ask ten thousand times a
	// second at most; and at most slotWait, for some request ends soon.
	slotTrip = 1_000
	slotAsk  = 100
	slotWait = 50_000
)

// slots is the step of a concurrency limit.
func (x *step) slots(g *Grant) {
	r, rec, next := x.r, x.rec, x.next
	inUse, held := r.InUse*limit.Micro, r.Held*limit.Micro
	freed := int64(0)
	switch {
	case rec != nil:
		if rec.Slot*SlotLen > x.t {
			x.Level += rec.Lease.Stock // release took it out of the sums
			freed = max(rec.Lease.Stock-inUse, 0)
		}
	case r.ExpiresIn > 0 && x.t < x.Suspect:
		declared := min(inUse+held, x.Withheld)
		x.Withheld -= declared
		x.Level += declared
	}
	x.Level -= inUse
	next.Lease.Demand, next.Fresh = x.demand()
	next.Largest = r.Largest
	if r.Final {
		// What is still in flight keeps its slots until they expire.
		next.Lease.Demand = 0
		next.Lease.Stock = inUse
		next.Expires = x.t
		if inUse > 0 {
			x.hang(ShortTerm, r.Spec.hold())
			g.ExpirySlot = next.Slot
		}
		return
	}
	mine := max(next.Lease.Demand, 1)
	all := x.Out.Demand + mine
	share := mulDiv(x.burst, mine, all)
	own := share >= slotOwn*limit.Micro || x.Out.Demand == 0
	spare, keep := x.spareFor(mine, share, own, inUse, held, freed)
	kept := max(spare, held)
	x.Level -= kept
	next.Lent = spare
	next.Lease.Stock = inUse + kept

	term := int64(LongTerm)
	switch {
	case rec == nil || rec.Grant.TTL == 0:
		term = ShortTerm
	case kept == 0 && x.Level >= x.burst/4:
		term = min(term, 4*rec.Grant.TTL)
	case own:
		term = min(4*ShortTerm, 2*rec.Grant.TTL) // a newcomer has to wait for it
	default:
		term = ShortTerm
	}
	x.hang(term, r.Spec.hold())
	g.Tokens = spare / limit.Micro
	g.Pile = keep / limit.Micro
	g.TTL = term
	g.Fallback = share // what it has beyond that it gives back as requests end, while others wait
	if own {
		g.Fallback += share / 8 // demand is measured, with its noise
	}
	g.ExpirySlot = next.Slot
	g.Remaining = max((x.Level+spare)/limit.Micro, 0)
	if spare < r.Waiting*limit.Micro || spare == 0 && x.Level < limit.Micro {
		g.DenyFor = min(max(slotTrip, mulDiv(slotAsk, all, mine), mulDiv(slotAsk, share, limit.Micro)), slotWait)
		if own && inUse+spare >= share-share/8 {
			g.DenyFor = max(term/2, slotWait) // it has its share, and nobody gives any back before
		}
	}
}

// spareFor is how many slots the holder may have besides those in use, and how many of them
// may lie idle: the others it gives back at once.
func (x *step) spareFor(mine, share int64, own bool, inUse, held, freed int64) (spare, keep int64) {
	can := whole(max(x.Level, 0))
	switch {
	case mine <= 1: // nothing was asked for of late
	case own:
		spare, keep = min(max(share-inUse, 0), max(inUse, slotStart*limit.Micro)), x.burst
		if x.Out.Demand == 0 {
			spare = min(spare, can/2) // for those to come
		}
	case x.Level-freed > x.burst/8 && x.r.Waiting*limit.Micro <= can:
		// Half of its part of what is free, at least one: as much again may come back before it gives any back. What
		// it gave back just now it has no use for, or others have more.
		spare = whole(mulDiv(x.Level, share, x.burst)/2 + limit.Micro - 1)
		keep = 2 * spare
		spare = max(spare, min(held, keep), inUse/4)
		if x.Level > x.burst/2 {
			spare = max(spare, min(can/8, slotStart*limit.Micro))
		}
		keep = max(keep, spare)
	default:
		keep = share / 8
		spare = min(held, keep)
	}
	serve := x.serve(can)
	if x.Out.Demand > 0 && serve < x.r.Waiting*limit.Micro {
		// There are too few: what the holder itself gave back just now is for others first.
		serve = x.serve(max(can-freed, 0))
	}
	return max(whole(min(spare, can)), serve), keep
}
