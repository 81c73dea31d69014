package lease

import (
	"math"
	"slices"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// advance brings the bucket to the time to: it refills, and lets the leases fall out
// whose slots are over, each at its time.
func (x *step) advance(to int64) {
	over := 0
	for ; over < len(x.Ring) && x.Ring[over].At*SlotLen <= to; over++ {
		sums := x.Ring[over].Sums
		x.refill(x.Ring[over].At * SlotLen)
		x.Out.subtract(sums)
		if x.Algorithm == limit.Concurrency {
			x.Level += sums.Stock + sums.Pile // the holder is gone, and what it had in flight with it
		}
		if x.r.Spec.Ledgered && sums.Stock > 0 {
			x.Lapsed, x.Moved = true, x.now
		}
	}
	x.Ring = slices.Delete(x.Ring, 0, over)
	x.refill(to)
}

func (x *step) refill(to int64) {
	if x.Suspect > x.Last {
		x.refillTo(min(to, x.Suspect))
		if to < x.Suspect {
			return
		}
		x.releaseWithheld()
	}
	x.refillTo(to)
}

// releaseWithheld makes of what forgotten leases might have held what may be granted, unless the ledger
// has still to say what was used.
func (x *step) releaseWithheld() {
	if x.Unsure == 0 {
		x.Level += x.Withheld
		x.Withheld = 0
	}
}

func (x *step) refillTo(to int64) {
	switch x.Algorithm {
	case limit.SlidingWindow:
		x.slide(to)
	case limit.SlidingWindowLog:
		x.leave(to)
	default:
		if own := x.flow - float64(x.drawn(x.rate)); own > 0 && to > x.Last {
			gained := float64(float64(to-x.Last)*own)/1e6 + x.Carry
			tokens := math.Floor(gained)
			x.Carry = gained - tokens
			x.Level += int64(min(tokens, 1<<52))
		}
	}
	x.Last = to
	x.clip(to)
}

// drawn is what leases draw of the rate. While some may live that the store forgot, it is
// taken to be all of it but epsilon.
func (x *step) drawn(rate int64) int64 {
	if x.Last < x.Suspect {
		return max(x.Out.Trickle, rate-mulDiv(rate, x.r.Spec.EpsilonPPM, limit.Micro))
	}
	return x.Out.Trickle
}

// clip keeps the invariant: the level may not rise above what is not out, and
// when the bucket could be full, trickle that went unused until then is void.
func (x *step) clip(t int64) {
	switch x.Algorithm {
	case limit.SlidingWindow:
		x.Level = min(x.Level, x.burst-x.Left)
		return
	case limit.SlidingWindowLog, limit.Concurrency:
		return
	}
	out := x.Out.Stock + x.Out.Pile
	full := min(x.burst, x.burst+x.slack-out)
	if x.Level >= full {
		// More than the burst may be lent of a bucket that shrank: it is in debt until that is back.
		to := min(max(full, min(x.burst-x.Out.Stock, 0)), x.Level)
		if x.r.Spec.Refills() {
			x.Forgiven = max(x.Forgiven-(x.Level-to), 0)
		}
		x.Level = to
		x.Carry = 0
		if x.Out.Trickle <= 0 {
			x.Since = t
		}
	}
	if x.Out.Trickle <= 0 {
		return
	}
	room := max(x.burst+x.slack-out-x.Level, 0)
	x.Since = max(x.Since, t-min(mulDiv(room, 1e6, x.Out.Trickle), t))
}

// floor is how far the level may be lowered by what was spent unasked: the bucket is in
// debt for no longer than it takes to fill. Of a limit that shrank below what was used, or lent, the level is
// lower already, and stays so: what was used is not forgotten should the limit grow again.
func (x *step) floor() int64 {
	return min(-x.burst-x.r.Spec.Borrow*limit.Micro, x.Level)
}

// release takes a live lease out of the sums. The stock of a window that is over
// is in them no more, but what was granted of the next one is.
func (x *step) release() {
	lent := x.rec.Lease
	if x.Algorithm == limit.FixedWindow && x.rec.Window != x.Window {
		lent = Sums{Demand: lent.Demand}
		if x.rec.NextWindow == x.Window {
			lent = x.rec.Lease.turned()
		}
	}
	x.Out.subtract(lent)
	x.Ring.subtract(x.rec.Slot, lent)
}

// putBack returns to the level what the holder did not spend of its lease, and
// takes out what it spent beyond it (in an outage, or on a lease forgotten here).
func (x *step) putBack() {
	rec, r, t := x.rec, x.r, x.t
	spent, held := x.spent*limit.Micro, r.Held*limit.Micro
	switch {
	case rec == nil:
		if x.windowed(r.Window) || r.Window == 0 { // on credit, before it had any
			x.redeclare(spent, held)
		}
		return
	case !x.windowed(r.Window):
		if x.windowed(rec.NextWindow) && !x.anew() {
			x.Level += rec.Lease.Next // it had not begun with it
		}
		return // of a window that is over
	case x.windowed(rec.Window):
	case x.windowed(rec.NextWindow):
		// It went over to what it had of this window. What it spent in all beyond both its parts
		// was not its own; and of this one's it spent no more than in all, though it holds less where the limit shrank meanwhile.
		held = min(held, rec.Lease.Next)
		over, back := max(spent-rec.Lent-(rec.Lease.Next-held), 0), max(rec.Lease.Next-held-spent, 0)
		lapsed := rec.Slot*SlotLen <= t
		if lapsed {
			held = 0
		}
		if x.anew() || lapsed && rec.Start < x.Returned {
			back = 0
		}
		x.Level = max(x.Level+held+back-over, x.floor())
		x.clip(t)
		return
	default:
		// Out of contact the holder went on with its share of each window, this one too:
		// what is left of it stays with the holder.
		share := mulDiv(rec.Grant.Fallback, x.WindowEnd-x.Window, 1e6)
		x.Level = max(x.Level-share+min(held, share), x.floor())
		return
	}
	// The ring kept the trickle for the holder until the slot was over, renewed or not.
	end := max(min(t, rec.Slot*SlotLen), rec.Start)
	lent := rec.Lent + mulDiv(rec.Lease.Trickle, end-rec.Start, 1e6)
	held = min(held, lent)
	if end < t {
		held = 0 // no longer in the sums: what was not spent of it is void
	}
	back := lent - spent - held
	if x.anew() {
		back = min(back, 0)
	}
	if end < t && back >= 0 {
		if x.Algorithm == limit.FixedWindow && rec.Start >= x.Returned {
			x.Level += back // nothing refilled it: it was in no sum, nor in the level
			x.clip(t)
		}
		return
	}
	x.Level += held
	if back >= 0 {
		x.Level += min(back, x.unused(end, back, spent, held))
	} else {
		x.overdraw(end, -back, spent)
	}
	x.clip(t)
}

// anew reports whether the holder begins another conversation while there is a record of one before. It does not say what it
// spent in that one: nothing of that lease goes back but what it still holds.
func (x *step) anew() bool { return x.rec.Began != x.r.Began }

// unused is the most of back that goes back of a lease, beside what is held of it. Unused trickle counts only since the bucket
// last could be full. When in that time it went unused nobody knows to the token: first, perhaps, until the bucket was full, and then
// it was drained. Strict limits take it so, and the error would be four times as large of others where demand is a little more than the
// rate. There the holder says what found no room, and when the last of that came (docs/error-bound.md).
func (x *step) unused(end, back, spent, held int64) int64 {
	lease, lent := &x.rec.Lease, x.rec.Lent
	trickle := mulDiv(lease.Trickle, end-x.sinceFull(end), 1e6)
	if x.r.Spec.EpsilonPPM > 0 {
		void, since := x.roomless(end)
		return min(lent+trickle, max(back-void, 0)+min(void, since))
	}
	drained := max(spent+held-lent-lease.Pile, 0) // of the trickle, since its cell was full
	return max(lent-spent-held, 0) + max(trickle-drained, 0)
}

// sinceFull is from when on what trickled of the lease until end was not void because the bucket could be full.
func (x *step) sinceFull(end int64) int64 { return max(min(x.Since, end), x.rec.Start) }

// roomless is what of the lease found no room, as far as its holder says, and the most of it that goes back: what trickled from when the bucket last
// could be full until the last of it came, and the lease's share of five eighths of the slack. A window has only one term of each holder across its beginning, so
// that no more than that is admitted in it that was void before. What was void of a lease that the holder never heard of was settled when it ended.
func (x *step) roomless(end int64) (all, since int64) {
	trickle, from := min(x.rec.Lease.Trickle, x.rate), x.rec.Start
	if x.r.Void == 0 || trickle <= 0 {
		return 0, 0
	}
	last := max(min(x.t-x.r.VoidAgo, end), from)
	all = min(x.r.Void*limit.Micro, mulDiv(x.rec.Lease.Trickle, last-from, 1e6))
	return all, mulDiv(trickle, max(last-x.sinceFull(end), 0), 1e6) + mulDiv(x.slack*5/8, trickle, x.rate)
}

// windowed reports whether window is the one that a fixed window is in; of what has
// none, every lease is.
func (x *step) windowed(window int64) bool {
	return x.Algorithm != limit.FixedWindow || window == x.Window
}

// overdraw takes out what the holder spent beyond its lease: all of it, while the
// store kept its share; otherwise the lease went on out of contact, and
// the bucket refilled as if nobody drew. What it gained wrongly is no more than the trickle since it last could be full. Where
// the holder had to deny, one central bucket would have been dry: the more it
// denied, the more is taken, but no more than was there when it could be full. Who comes back first, and finds nobody,
// stands for all: what the bucket gains from then on is not to be taken by those who come back later.
func (x *step) overdraw(end, over, spent int64) {
	if end == x.t || x.Algorithm == limit.FixedWindow {
		x.Level = max(x.Level-over, x.floor())
		return
	}
	denied := x.denied * limit.Micro
	recent := min(over, mulDiv(x.rec.Lease.Trickle, x.t-max(end, min(x.Since, x.t)), 1e6))
	x.Level = max(x.Level-recent, x.floor())
	if x.Level > 0 && denied > 0 {
		take := mulDiv(over-recent, denied, spent+denied)
		if lent := x.rec.Lease.Trickle; x.Out.Trickle == 0 && lent > 0 {
			if take >= mulDiv(x.Level, lent, x.rate) {
				take = x.Level
			} else {
				take = mulDiv(take, x.rate, lent)
			}
		}
		gained := mulDiv(x.rate, min(max(x.t-x.Since, 0), MaxStep), 1e6)
		x.Level = max(x.Level-take, min(x.Level, gained))
	}
}
