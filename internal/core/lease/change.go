package lease

import (
	"slices"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// A limit that changes its algorithm keeps what was used: it counts as the new algorithm counts what was used at the bucket's last
// step. A bucket refills from then on, a log has an entry of then, a sliding window weighs it in the window that it was in, and in
// a fixed one it is void if another began since. What is more than a bucket or a sliding window holds is Forgiven, and counts again on
// return as far as it would not have come back meanwhile. Slots use nothing up: they keep all of it in Forgiven, of the time
// Since, for the algorithm after them. So over any sequence of changes among limits of one capacity
//
//	admitted ≤ capacity + borrow + what refills,  and in flight ≤ slots
//
// Leases of before are in the ring as piles until their slots are over, charged in full; what their trickles bring after the
// change is charged when their holders renew.

// change takes the bucket to the limit's algorithm. Records stay, for repeated numbers.
func (x *step) change() {
	s := x.State
	x.t = max(x.t, s.Last+1) // later than every lease of before
	x.drawOld()
	used, at := x.usedOld()
	out := x.pileOld()
	changed := s.Changed
	if changed == 0 || len(s.Ring) == 0 {
		changed = x.t
	}
	*x.State = State{
		Algorithm: x.r.Spec.Algorithm, Level: x.burst, Burst: x.burst, Last: x.t, Since: x.t, Edge: x.t, LastEdge: x.t,
		Offset: s.Offset, Generation: following(s.Generation), Changed: changed, Full: s.Full,
		Locked: s.Locked, Out: s.Out, Ring: s.Ring, Holders: s.Holders, Steps: s.Steps,
	}
	x.use(max(used, out), out, at)
}

// drawOld takes out what the leases' trickles drew since the last step, and lets those go whose slots are over.
func (x *step) drawOld() {
	s, over := x.State, 0
	for i := range s.Ring {
		slot := &s.Ring[i]
		end := slot.At * SlotLen
		s.Level -= mulDiv(slot.Trickle, max(min(end, x.t)-s.Last, 0), 1e6)
		if end <= x.t {
			if over++; s.Algorithm == limit.Concurrency {
				s.Level += slot.Stock + slot.Pile
			}
			s.Out.subtract(slot.Sums)
		}
	}
	s.Ring = slices.Delete(s.Ring, 0, over)
}

// usedOld is what was used by the old algorithm, with what is lent, and when. What is out of slots may be spent on the new one.
func (x *step) usedOld() (used, at int64) {
	s := x.State
	switch {
	case s.Algorithm == limit.Concurrency:
		return s.Forgiven + s.Out.Stock, s.Since
	case s.Algorithm != limit.FixedWindow:
		return s.Burst - s.Level + s.Forgiven, s.Last
	case x.now >= s.WindowEnd:
		return s.Out.Next + s.Out.Pile, s.Last
	}
	return s.Burst - s.Level + s.Out.Next, s.Last
}

// pileOld makes piles of all leases, and tells how much they are. Of slots, less than a token is not out.
func (x *step) pileOld() int64 {
	s := x.State
	s.Out = Sums{}
	for i := range s.Ring {
		sums := &s.Ring[i].Sums
		pile := sums.Stock + sums.Pile + sums.Next
		if x.r.Spec.Algorithm == limit.Concurrency {
			pile = whole(pile)
		}
		*sums = Sums{Pile: pile}
		s.Out.Add(*sums)
	}
	s.Ring = slices.DeleteFunc(s.Ring, func(s Slot) bool { return s.Sums == (Sums{}) })
	return s.Out.Pile
}

// use takes out of the bucket, which is full, what was used at a time, with what of it is out.
func (x *step) use(used, out, at int64) {
	p := &x.r.Spec
	start, end := x.present()
	then := at - x.Offset
	switch x.Algorithm {
	case limit.FixedWindow:
		if then < start {
			used = out
		}
		x.Window, x.WindowEnd, x.Moved = start, end, x.now
		x.Level -= used
		x.Forgiven = max(-x.Level, 0)
	case limit.SlidingWindow:
		x.Window, x.WindowEnd = start, end
		x.Edge = x.t - max(min(x.now-start, x.t), 0)
		x.LastEdge = x.Edge
		length := end - start
		switch {
		case then >= start:
		case then >= start-length:
			x.Before = min(used-out, x.burst)
			x.Forgiven = used - out - x.Before
			x.Left = min(mulDiv(x.Before, max(end-x.now, 0), length), x.Before)
			used = out
		default:
			used = out
		}
		x.Level -= x.Left + used
		if over := -x.Level - x.Left; over > 0 {
			x.Forgiven += over
			x.Level += over
		}
	case limit.SlidingWindowLog:
		t := x.t
		if x.t = at; at+p.Period > t {
			x.note(units(used - out))
		}
		x.t = t
		x.note(units(out))
	case limit.Concurrency:
		x.Level -= out
		x.Forgiven, x.Since = used, at
	default:
		x.Last = at
		x.Level -= used
		x.forgive(-p.Borrow * limit.Micro)
	}
	x.Forgiven = min(x.Forgiven, limit.MaxUnits*limit.Micro)
}

// units is how many hold so many micro-tokens.
func units(v int64) int64 { return mulDiv(v+limit.Micro-1, 1, limit.Micro) }

// chargeOld takes out what the holder of a lease of before a change spent beyond what was charged then.
func (x *step) chargeOld(rec *Record) {
	if rec.Algorithm == limit.Concurrency {
		return // what it had was charged; of what else it admitted the slots were free again
	}
	spent := x.spent
	if rec.Began == x.r.Began {
		spent = max(x.r.Admitted-rec.Admitted, 0)
	}
	end := min(x.begun(), x.Changed, rec.Slot*SlotLen)
	if x.Changed == 0 {
		end = min(x.begun(), rec.Slot*SlotLen)
	}
	over := min(spent, limit.MaxUnits)*limit.Micro - rec.Lent - rec.Lease.Next - mulDiv(rec.Lease.Trickle, max(end-rec.Start, 0), 1e6)
	if x.Algorithm == limit.FixedWindow && x.begun() < x.Window+x.Offset {
		// Windows turned since: of what it spent, some was of those that are over.
		over = min(over, mulDiv(rec.Lease.Trickle, max(x.t-x.Window-x.Offset, 0), 1e6))
	}
	if over <= 0 {
		return
	}
	switch x.Algorithm {
	case limit.Concurrency:
		x.Forgiven = min(x.Forgiven+over, limit.MaxUnits*limit.Micro)
	case limit.SlidingWindowLog:
		x.enter(units(over))
	default:
		x.Level = max(x.Level-over, x.floor())
	}
}
