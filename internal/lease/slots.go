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
// says what it has indeed. When it does not renew until its place in the ring is over, all that
// it had is free again; should it renew after all, what it has in use is taken out once more,
// and the level may be below zero until enough requests end.

const (
	// slotSpare is how many spare slots a holder with nothing in flight may have.
	slotSpare = 16
	// slotWait is how long a holder denies for which no slot was free, in microseconds: some
	// request ends soon.
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
	spare := x.spareFor(mine, all, inUse, freed)
	kept := max(spare, held)
	x.Level -= kept
	next.Lent = spare
	next.Lease.Stock = inUse + kept

	term := int64(LongTerm)
	if kept > 0 || x.Level < x.burst/4 {
		term = ShortTerm
	} else if rec == nil || rec.Grant.TTL == 0 {
		term = ShortTerm
	} else {
		term = min(term, 4*rec.Grant.TTL)
	}
	x.hang(term, r.Spec.hold())
	g.Tokens = spare / limit.Micro
	g.TTL = term
	g.Fallback = mulDiv(x.burst, mine, all) // what it has beyond that it gives back as requests end, while others wait
	g.ExpirySlot = next.Slot
	g.Remaining = max((x.Level+spare)/limit.Micro, 0)
	if spare < r.Waiting*limit.Micro || spare == 0 && x.Level < limit.Micro {
		g.DenyFor = slotWait
	}
}

// spareFor is how many slots the holder may have besides those in use: what requests wait for, and while
// many are free, some for those to come. When there are too few, what the holder itself gave
// back just now is for others first: whoever asks next may have it.
func (x *step) spareFor(mine, all, inUse, freed int64) int64 {
	can := whole(max(x.Level, 0))
	share := whole(mulDiv(can, mine, all) / 2)
	spare := int64(0)
	switch {
	case x.Level > x.burst/2:
		spare = min(share, max(inUse, slotSpare*limit.Micro))
	case x.Level > x.burst/8:
		spare = min(share, max(whole(inUse/4), 2*limit.Micro))
	}
	serve := x.serve(can)
	if x.Out.Demand > 0 && serve < x.r.Waiting*limit.Micro {
		serve = x.serve(max(can-freed, 0))
	}
	return max(spare, serve)
}
