package lease

// Out of contact an agent goes on with its fallback: a part of the rate, and the same part of the burst. It may be more
// than its trickle, which follows the demand closely. The step never promises more than the rate to all holders:
//
//	Fallback ≤ rate
//
// That counts the holders whose leases live, and those that gave theirs back within the last Remembered. Holders that
// the store does not know any more have nothing. So in a total outage the bucket is split into local ones. Their rates
// sum to the rate at most, and their bursts to the burst.
//
// Only limits that refill have fallbacks. Strict limits have none, nor have those that lock out. A fixed window has parts
// (window.go). Sliding windows and slots have shares of their own (grant, slots).

const (
	// Remembered is how long the fallback of a holder that gave its lease back is kept for it, in microseconds.
	Remembered = LongestTerm
	// farSlots keeps the ring short: these fallbacks end at multiples of as many slots.
	farSlots = 16
	// room is how many times its demand a holder's fallback is at most, while others ask for little.
	room = 4
	// unasked is the part of what is left of the rate that a holder may have, whatever it asks for: one of so many.
	unasked = 6
)

// fallback is the holder's, beside those of others.
func (x *step) fallback(mine, all int64) int64 {
	if !x.r.Spec.Refills() || x.r.Spec.EpsilonPPM == 0 || x.r.Spec.Lockout > 0 {
		return 0
	}
	free := max(x.rate-x.Out.Fallback, 0)
	want := max(x.next.Lease.Trickle, free/unasked)
	if rec := x.rec; rec != nil && !x.next.Fresh {
		share := min(mulDiv(x.rate, mine, all), room*1000*mine)
		if !rec.Fresh {
			// It may have to do for hours: noise of a term is not to be in it.
			elapsed := max(x.t-rec.Start, 0)
			share = rec.Lease.Fallback + mulDiv(share-rec.Lease.Fallback, elapsed, elapsed+LongTerm)
		}
		want = max(want, share)
	}
	return min(want, free)
}

// farewell leaves a holder that gave its lease back a part of the fallback that is left.
func (x *step) farewell(g *Grant) {
	rec, next := x.rec, x.next
	if rec == nil || rec.Lease.Fallback == 0 || x.rate == 0 {
		return
	}
	free := max(x.rate-x.Out.Fallback, 0)
	g.Fallback = min(rec.Lease.Fallback, free/unasked)
	if g.Fallback == 0 {
		return
	}
	next.Lease.Fallback = g.Fallback
	x.Out.Add(next.Lease)
	x.Ring.Add(next.FallbackSlot(), next.Lease)
}

// FallbackSlot is the slot of the ring that the holder's fallback is in. A lease without a trickle may end without a
// word, and one that was given back is over: so these leave the fallback for Remembered.
func (r *Record) FallbackSlot() int64 {
	if r.Lease.Trickle > 0 {
		return r.Slot
	}
	return max(r.Slot, ((r.Start+Remembered)/SlotLen/farSlots+1)*farSlots)
}
