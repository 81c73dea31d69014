package lease

import "github.com/f4ee788f/quota/internal/core/limit"

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
//
// A request of several slots is served whole, or its holder gathers them within its share. So that small ones do not take for ever
// what comes free, holders with smaller ones give way to it: their shares are of what it leaves. What a holder has beyond its share it gives up
// as its requests end, for it is told that none is left.

const (
	// SlotOwn is the share, in slots, from which on a holder has it to itself.
	SlotOwn = 200
	// slotStart is how many spare slots a holder with little in flight may have while most are free.
	slotStart = 16
	// How long a holder denies for which no slot was free, in microseconds: at least part of a round trip, as long as it
	// takes one of its own to come back, and so that all holders together ask ten thousand times a
	// second at most; and at most slotWait, for some request ends soon.
	slotTrip = 1_000
	slotAsk  = 100
	slotWait = 50_000
	// slotTurn is how long a request that is larger than its holder's share waits until others give way to it, in microseconds.
	slotTurn = 1_000_000
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
	if x.larger() {
		share = mulDiv(max(x.burst-x.Largest*limit.Micro, 0), mine, all) // of what that one leaves
	}
	own := share >= SlotOwn*limit.Micro || x.Out.Demand == 0
	spare, keep := x.spareFor(mine, share, own, inUse, held, freed)
	x.await(spare, share)
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
	if x.Out.Demand > mine && x.t < x.LargestUntil && x.Level < x.Largest*limit.Micro {
		g.Remaining = 0 // what there is, others wait for: none is to keep more than its share
	}
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
	if x.larger() && (inUse > 0 || x.t-x.LastEdge >= slotTurn) {
		can = min(can, whole(max(share-inUse, 0))) // beyond that they are for that one, after a second more even the first of this holder's
	}
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
	if x.Out.Demand > 0 && (serve < x.r.Waiting*limit.Micro || x.r.Largest > 1 && inUse+serve > share) {
		// There are too few, or it is a large request's turn: what the holder itself gave back just now is for others first.
		serve = x.serve(max(can-freed, 0))
	}
	if x.r.Largest > 1 && serve < x.r.Waiting*limit.Micro {
		spare = min(spare, held) // more would serve none of those that wait
	}
	return max(whole(min(spare, can)), serve), keep
}

// await notes the largest request of several slots that found too few. Others give way to it from LastEdge on, while it goes on asking: at
// once where it is about as large as its holder's share, and else a second after the last such one began.
func (x *step) await(spare, share int64) {
	size := x.r.Largest
	if size <= 1 || size < x.Largest && x.t < x.LargestUntil {
		return
	}
	if x.t >= x.LargestUntil || spare >= size*limit.Micro {
		x.LastEdge = x.t + slotTurn
	}
	if spare >= size*limit.Micro {
		return
	}
	x.Largest, x.LargestUntil = size, x.t+2*slotWait
	if size*limit.Micro <= share+share/4 {
		x.LastEdge = min(x.LastEdge, x.t)
	}
}

// larger reports whether the holder gives way to a larger request than any of its own.
func (x *step) larger() bool {
	return x.Out.Demand > 0 && x.t < x.LargestUntil && x.r.Largest < x.Largest && x.t >= x.LastEdge
}
