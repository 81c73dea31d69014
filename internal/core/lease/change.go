package lease

import (
	"slices"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// A limit that changes its algorithm keeps what was used until the bucket's last step. The new algorithm counts
// it as used at the time of that step:
//
//   - A bucket refills from then on.
//   - A log gets an entry of that time.
//   - A sliding window counts it in the window that it was used in.
//   - A fixed window drops it if another window began since.
//   - Slots use nothing up. They keep all of it in Forgiven, dated Since, for the algorithm after them.
//
// Use above the capacity of a bucket or a sliding window is Forgiven. If the limit changes back, it counts
// again, less what would have refilled meanwhile. So over any sequence of changes among limits of one capacity
//
//	admitted ≤ capacity + borrow + what refills,  and in flight ≤ slots
//
// Leases from before the change stay in the ring as piles until their slots are over, and are charged in full.
// What their trickles bring after the change is charged when their holders renew.

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

// drawOld takes out what trickles drew since the last step, and drops leases whose slots are over.
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

// usedOld returns what was used under the old algorithm, lent tokens included, and when. Slots that are out may
// be spent as tokens of the new one.
func (x *step) usedOld() (used, at int64) {
	s := x.State
	switch {
	case s.Algorithm == limit.Concurrency:
		return s.Forgiven + s.Out.Stock, s.Since
	case s.Algorithm != limit.FixedWindow:
		return s.Burst - s.Level + s.Forgiven, s.Last
	case x.now >= s.WindowEnd: // holders have gone over to their parts
		return s.Out.Next + s.Out.Pile, s.Last
	}
	return s.Burst - s.Level, s.Last
}

// pileOld turns all leases into piles, and returns their sum. Of slots, only whole ones are out.
func (x *step) pileOld() int64 {
	s := x.State
	s.Out = Sums{}
	over := s.Algorithm == limit.FixedWindow && x.now >= s.WindowEnd
	for i := range s.Ring {
		sums := &s.Ring[i].Sums
		pile := sums.Stock + sums.Pile
		if over {
			pile = sums.Next + sums.Pile
		}
		if x.r.Spec.Algorithm == limit.Concurrency {
			pile = whole(pile)
		}
		*sums = Sums{Pile: pile}
		s.Out.Add(*sums)
	}
	s.Ring = slices.DeleteFunc(s.Ring, func(s Slot) bool { return s.Sums == (Sums{}) })
	return s.Out.Pile
}

// use takes from the full bucket what was used at a time; out is the part of it that holders still have.
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
		if at+p.Period > x.t {
			x.note(at, units(used-out))
		}
		x.note(x.t, units(out))
	case limit.Concurrency:
		x.Level -= out
		x.Forgiven, x.Since = used, at
	default:
		x.Last = at
		x.Level -= used
		x.refillTo(x.t) // first, for what trickles drew since then is in used
		x.forgive(-p.Borrow * limit.Micro)
	}
	x.Forgiven = min(x.Forgiven, limit.MaxUnits*limit.Micro)
}

// units is the number of whole units that v micro-tokens fill, rounded up.
func units(v int64) int64 { return mulDiv(v+limit.Micro-1, 1, limit.Micro) }

// chargeOld takes out what a holder spent on a lease from before the change, beyond what was charged at the
// change.
func (x *step) chargeOld(rec *Record) {
	if rec.Algorithm == limit.Concurrency {
		return // the change charged what it had; slots of other requests are free again
	}
	spent := x.spent
	if rec.Began == x.r.Began {
		spent = max(x.r.Admitted-rec.Admitted, 0)
	}
	end := min(x.begun(), x.Changed, rec.Slot*SlotLen)
	if x.Changed == 0 {
		end = min(x.begun(), rec.Slot*SlotLen)
	}
	over := min(spent, limit.MaxUnits)*limit.Micro - rec.Lent - mulDiv(rec.Lease.Trickle, max(end-rec.Start, 0), 1e6)
	if rec.NextWindow > 0 && rec.NextWindow+x.Offset <= x.begun() {
		over -= rec.Lease.Next
	}
	if x.Algorithm == limit.FixedWindow && x.begun() < x.Window+x.Offset {
		// Windows turned since: part of what it spent belongs to windows that are over.
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
