package lease

import "github.com/f4ee788f/quota/internal/core/limit"

// Slots are taken for as long as a request lasts, and never refill. A holder has slots in use by its requests,
// and some to spare. Level is what nobody has:
//
//	Level + what all live holders have = slots
//
// So while the level is not below zero, requests in flight over all live holders ≤ slots.
//
// A holder starts requests in its spare slots while a renewal is under way. So slots that a grant takes from
// its spare stay the holder's in the sums until its next renewal says what it has. Slots that it gave up before
// it renewed are in neither, and free at once. If it does not renew before its slot of the ring is over, all
// its slots are free again. If it renews after all, those in use are taken out once more. The level may then be
// below zero until enough requests end.
//
// Slots that lie idle with one holder are missed by the others, and each slot that goes through the store costs
// two renewals. If a holder had its share of a slots to itself, Erlang's B(a, a) would be lost, about 0.8 ÷ √a.
// That is a twentieth from 200 on, and a quarter of five. So holders with large shares keep them, and renew for
// the term's sake. Smaller ones keep an eighth of theirs idle and give back the rest at once.
//
// A request of several slots is served whole, or its holder gathers them within its share. Small requests must
// not take for ever what comes free. So holders with smaller requests give way: their shares are of what the
// large one leaves. Slots beyond its share a holder gives up as its requests end, for it is told that none is
// left.

const (
	// SlotOwn is the share, in slots, from which on a holder has it to itself.
	SlotOwn = 200
	// slotStart is how many spare slots a holder with little in flight may have while most are free.
	slotStart = 16
	// A holder for which no slot was free denies for a time, in microseconds. It is at least slotTrip, part of
	// a round trip, and as long as one of its own slots takes to come back. slotAsk keeps all holders together
	// to ten thousand calls a second. slotWait is the most, for some request ends soon.
	slotTrip = 1_000
	slotAsk  = 100
	slotWait = 50_000
	// slotTurn is how long a request larger than its holder's share waits until others give way to it, in
	// microseconds.
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
	g.Fallback = share // it gives back what is beyond, as requests end, while others wait
	if own {
		g.Fallback += share / 8 // demand is measured, with its noise
	}
	g.ExpirySlot = next.Slot
	g.Remaining = max((x.Level+spare)/limit.Micro, 0)
	if x.Out.Demand > mine && x.t < x.LargestUntil && x.Level < x.Largest*limit.Micro {
		g.Remaining = 0 // others wait for what is left: no holder is to keep more than its share
	}
	if spare < r.Waiting*limit.Micro || spare == 0 && x.Level < limit.Micro {
		g.DenyFor = min(max(slotTrip, mulDiv(slotAsk, all, mine), mulDiv(slotAsk, share, limit.Micro)), slotWait)
		if own && inUse+spare >= share-share/8 {
			g.DenyFor = max(term/2, slotWait) // it has its share, and nobody gives any back before
		}
	}
}

// spareFor returns how many slots the holder may have besides those in use, and how many of them may lie idle.
// It gives back the rest at once.
func (x *step) spareFor(mine, share int64, own bool, inUse, held, freed int64) (spare, keep int64) {
	can := whole(max(x.Level, 0))
	if x.larger() && (inUse > 0 || x.t-x.LastEdge >= slotTurn) {
		// Slots beyond the share are for the larger request. After a second more that holds even for the
		// holder's first.
		can = min(can, whole(max(share-inUse, 0)))
	}
	switch {
	case mine <= 1: // nothing was asked for of late
	case own:
		spare, keep = min(max(share-inUse, 0), max(inUse, slotStart*limit.Micro)), x.burst
		if x.Out.Demand == 0 {
			spare = min(spare, can/2) // for those to come
		}
	case x.Level-freed > x.burst/8 && x.r.Waiting*limit.Micro <= can:
		// Half of its part of what is free, at least one: as much again may come back before it gives any back.
		// If it gave slots back just now, it has no use for them, or others have more.
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
		// Too few slots are left, or it is a large request's turn: what the holder gave back just now is for
		// others first.
		serve = x.serve(max(can-freed, 0))
	}
	if x.r.Largest > 1 && serve < x.r.Waiting*limit.Micro {
		spare = min(spare, held) // more would serve none of those that wait
	}
	return max(whole(min(spare, can)), serve), keep
}

// await notes the largest request of several slots that found too few. Others give way to it from LastEdge on,
// while it goes on asking. That is at once if it is about as large as its holder's share, and else a second
// after the last such request began.
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
