package lease

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// A sliding window of L units lets requests through while
//
//	current + before × (1 − f) ≤ L
//
// Here current is what was used in this window, before in the one before, and f the part of this window that is
// over. To a step, that is a bucket that refills: with
//
//	Level = L − current − Left
//	Left  = Before × (1 − f)
//
// the level gains Before ÷ length as time goes on. When the window turns, f goes from one to nought, current
// becomes Before, and the level stays as it is. So trickles draw from the level what it would have gained. At a
// window's end, the use in it is what the level lacks.
//
// current counts what was granted, spent or not. Stocks and piles that are out when the window turns may be
// spent on either side. Spent before, they would count as Before, which weighs ever less; taken as current they
// weigh in full. The step takes them as current, except for the slack, of which little is then out. So at every
// instant
//
//	current + before × (1 − f) ≤ L + slack ≤ (1 + ε) × L
//
// as long as the level is not below zero. Only two things lower it there. One is overspending (an outage,
// on_outage: open). The other is trickles that outlive the window while the new flow is less than the old. For
// these the step keeps a reserve (slidingReserve), which the level can pay for. The flow fell by less than the
// use of the window before exceeded this one's, and the level rose by that much.
//
// An unspent trickle that is given back leaves the window that it was drawn in. Of two windows it leaves the
// older, where it weighs less. leasetest plays random histories of honest holders against this bound.

// turnSliding begins the window [start, end), and the windows since the bucket's own that nobody saw.
func (x *step) turnSliding(start, end int64) {
	if x.Window == 0 {
		x.Window, x.WindowEnd = start, end
		x.Edge = x.t - max(min(x.now-start, x.t), 0)
		x.LastEdge = x.Edge
		return
	}
	if start <= x.Window {
		x.WindowEnd = max(x.WindowEnd, end) // windows became longer: this one goes on
		return
	}
	edge := min(x.WindowEnd, start)
	x.turnAt(edge)
	if edge < start { // windows that nobody saw, taken as one
		x.Window, x.WindowEnd = edge, start
		x.turnAt(start)
	}
	x.Window, x.WindowEnd = start, end
}

// turnAt turns the window at the store's time edge.
func (x *step) turnAt(edge int64) {
	at := max(min(edge+x.Offset, x.t), x.Last)
	x.advance(at)
	x.Level += x.Left
	x.Left = 0
	x.Forgiven = max(x.Forgiven-x.burst, 0) // as much as a full window lets through
	used := max(x.burst-x.Level, 0)
	out := min(used, max(x.Out.Stock+x.Out.Pile-x.slidingSlack(), 0))
	x.Before = used - out
	x.Left = x.Before
	// What is out within the slack counts as spent, and its give-back accounts for that.
	x.Level = min(x.Level, x.burst)
	x.LastEdge, x.Edge = x.Edge, at
}

func (x *step) slidingSlack() int64 { return mulDiv(x.burst, x.r.Spec.EpsilonPPM, 2*limit.Micro) }

// slidingRate is the flow of this window, in whole micro-tokens a second.
func (x *step) slidingRate() int64 { return mulDiv(x.Before, 1e6, x.WindowEnd-x.Window) }

// slide brings the level to the time to: the window before counts for less, and trickles draw.
func (x *step) slide(to int64) {
	if to <= x.Last || x.WindowEnd == 0 {
		return
	}
	left := min(x.Left, mulDiv(x.Before, max(x.WindowEnd+x.Offset-to, 0), x.WindowEnd-x.Window))
	gained := x.Left - left
	x.Left = left
	drawn := float64(float64(to-x.Last)*float64(x.drawn(x.slidingRate())))/1e6 + x.Carry
	tokens := math.Floor(drawn)
	x.Carry = drawn - tokens
	x.Level = max(x.Level+gained-int64(min(tokens, 1<<52)), x.floor())
}

// slidingTerm bounds a lease's term and hold, so that none outlives two edges.
func (x *step) slidingTerm(term, hold int64) (int64, int64) {
	length := x.WindowEnd - x.Window
	term = max(min(term, (length-SlotLen)/2), 1_000)
	return term, min(hold, max(length-SlotLen-term, 0))
}

// slidingReserve is the most that trickles may draw beyond this window's flow until the last of them ends. They
// are trickles of the window before, where more flowed.
func (x *step) slidingReserve() int64 {
	over := x.Out.Trickle - x.slidingRate()
	if over <= 0 {
		return 0
	}
	last := x.t
	for _, slot := range x.Ring {
		if slot.Trickle > 0 {
			last = max(last, slot.At*SlotLen)
		}
	}
	return mulDiv(over, last-x.t, 1e6)
}

// slideBack is putBack for a sliding window.
func (x *step) slideBack() {
	rec, r, t := x.rec, x.r, x.t
	spent, held := x.spent*limit.Micro+r.Fraction, r.Held*limit.Micro
	if rec == nil {
		x.redeclare(spent, held)
		return
	}
	end := max(min(t, rec.Slot*SlotLen), rec.Start)
	lent := rec.Lent + mulDiv(rec.Lease.Trickle, end-rec.Start, 1e6)
	if end < t {
		// No longer in the sums: what it did not spend is void. What it spent beyond the lease is taken as
		// spread evenly since.
		if over := spent - lent; over > 0 {
			x.overslide(end, over)
		}
		return
	}
	if spent > lent {
		x.Level = max(x.Level-(spent-lent), x.floor())
		return
	}
	held = min(held, lent-spent)
	x.Level += held
	back := lent - spent - held
	if x.anew() {
		back = 0
	}
	// The oldest first: of a window that counts no more, of the one before, of this one.
	before := mulDiv(rec.Lease.Trickle, max(min(end, x.Edge)-max(rec.Start, x.LastEdge), 0), 1e6)
	older := mulDiv(rec.Lease.Trickle, max(min(end, x.LastEdge)-rec.Start, 0), 1e6)
	if waited := rec.Lent - rec.Lease.Stock; rec.Start < x.LastEdge {
		older += waited // a request that had gone by the time of the answer
	} else if rec.Start < x.Edge {
		before += waited
	}
	back -= min(back, older)
	if n := min(back, before, x.Before); n > 0 {
		back -= n
		counts := mulDiv(n, x.Left, x.Before)
		x.Before -= n
		x.Left -= counts
		x.Level += counts
	}
	x.Level += back
	x.clip(t)
}

// overslide takes out what was spent since end on a lease that was over.
func (x *step) overslide(end, over int64) {
	length := x.WindowEnd - x.Window
	all := x.t - end
	now := mulDiv(over, x.t-max(end, x.Edge), all)
	before := min(mulDiv(over, max(x.Edge-max(end, x.LastEdge), 0), all), max(x.burst-x.Before, 0))
	counts := mulDiv(before, max(x.Edge+length-x.t, 0), length)
	counts = min(counts, before)
	level := max(x.Level-now-counts, x.floor())
	x.Before += before
	x.Left += counts
	x.Level = level
}

// slidingWait is how long it takes until there is a token, if nothing is drawn. The token comes in this window,
// or in the next as this one's use fades.
func (x *step) slidingWait(level int64) int64 {
	left := max(x.WindowEnd-x.now, 1_000)
	if level+x.Left >= limit.Micro {
		// The flow is not rounded here, for it may be some micro-tokens a second.
		return min(lasts(limit.Micro-level, float64(float64(x.Before)*1e6)/float64(x.WindowEnd-x.Window)), left)
	}
	used := max(x.burst-x.Level-x.Left, 1)
	return left + mulDiv(limit.Micro-level-x.Left, x.WindowEnd-x.Window, used)
}
