package lease

import (
	"math"
	"slices"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// advance brings the bucket to the time to: it refills, and drops each lease when its slot is over.
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

// releaseWithheld makes tokens grantable that forgotten leases might have held, unless the ledger has still to
// say what was used.
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

// drawn is the part of the rate that leases draw. While forgotten leases may live, it is all of the rate but
// epsilon.
func (x *step) drawn(rate int64) int64 {
	if x.Last < x.Suspect {
		return max(x.Out.Trickle, rate-mulDiv(rate, x.r.Spec.EpsilonPPM, limit.Micro))
	}
	return x.Out.Trickle
}

// clip keeps the invariant: the level may not rise above what is not out. When the bucket could be full,
// trickle that went unused until then is void.
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
		// A bucket that shrank may have lent more than its burst: it is in debt until that is back.
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

// floor is the lowest level that unasked spending may cause: debt is at most what the bucket gains while it
// fills. The level may be lower already if the limit shrank below what was used or lent. Then it stays: the use
// still counts if the limit grows again.
func (x *step) floor() int64 {
	return min(-x.burst-x.r.Spec.Borrow*limit.Micro, x.Level)
}

// release takes a live lease, and the fallback, out of the sums. They no longer have the stock of a window that is
// over, but the holder's part of the present one.
func (x *step) release() {
	lent, fallback := x.rec.Lease.apart()
	if at := x.rec.FallbackSlot(); fallback.Fallback > 0 && at*SlotLen > x.t {
		x.Out.subtract(fallback)
		x.Ring.subtract(at, fallback)
	}
	if x.rec.Slot*SlotLen <= x.t {
		return
	}
	if x.Algorithm == limit.FixedWindow && x.rec.Window != x.Window {
		lent = lent.turned()
	}
	x.Out.subtract(lent)
	x.Ring.subtract(x.rec.Slot, lent)
}

// putBack returns to the level what the holder did not spend of its lease. It takes out what the holder spent
// beyond it, in an outage or on a forgotten lease.
func (x *step) putBack() {
	rec, r, t := x.rec, x.r, x.t
	spent, held := x.spent*limit.Micro+r.Fraction, r.Held*limit.Micro
	if rec != nil && x.anew() && r.Elapsed == 0 && r.ExpiresIn == 0 && x.windowed(r.Window) {
		// It had no answer yet: it spent on credit, and nothing of its lease before.
		x.Level, spent = max(x.Level-spent, x.floor()), 0
	}
	switch {
	case rec == nil:
		if x.windowed(r.Window) || r.Window == 0 { // on credit, before it had any
			x.redeclare(spent, held)
		}
		return
	case !x.windowed(r.Window):
		x.notYet(spent)
		return
	case !x.windowed(rec.Window):
		x.putPartBack(spent, held)
		return
	}
	if x.Algorithm == limit.FixedWindow {
		x.keeps = min(held, rec.Lent)
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

// anew reports whether the holder began another conversation since its record. It does not say what it spent in
// the one before, so of that lease only what it still holds goes back.
func (x *step) anew() bool { return x.rec.Began != x.r.Began }

// unused is the most of back that returns to the level, beside what the holder keeps. Unused trickle counts
// only since the bucket last could be full. Nobody knows to the token when in that time it went unused. The
// worst case is that it was at first, until the bucket was full and was then drained. Strict limits assume that
// case. For others the error would be four times as large where demand is a little above the rate. Their
// holders say what found no room, and when the last of it came (docs/error-bound.md).
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

// sinceFull is the time from which the lease's trickle until end counts. Before it the bucket could be full,
// and trickle was void.
func (x *step) sinceFull(end int64) int64 { return max(min(x.Since, end), x.rec.Start) }

// roomless returns the tokens of the lease that found no room, as its holder says, and the most of them that
// goes back. That is the trickle from when the bucket last could be full until the last of them came. The
// lease's share of five eighths of the slack is added. Only one term of each holder spans a window's beginning.
// So a window admits no more than that share of formerly void trickle. Void trickle of a lease that the holder
// never heard of was settled when it ended.
func (x *step) roomless(end int64) (all, since int64) {
	trickle, from := min(x.rec.Lease.Trickle, x.rate), x.rec.Start
	if x.r.Void == 0 || trickle <= 0 {
		return 0, 0
	}
	last := max(min(x.t-x.r.VoidAgo, end), from)
	all = min(x.r.Void*limit.Micro, mulDiv(x.rec.Lease.Trickle, last-from, 1e6))
	return all, mulDiv(trickle, max(last-x.sinceFull(end), 0), 1e6) + mulDiv(x.slack*5/8, trickle, x.rate)
}

// windowed reports whether a fixed window's bucket is in window. Leases of other algorithms always are.
func (x *step) windowed(window int64) bool {
	return x.Algorithm != limit.FixedWindow || window == x.Window
}

// overdraw takes out what the holder spent beyond its lease: all of it, while the store kept its share.
// Otherwise the lease went on out of contact, and the bucket refilled as if nobody drew. Its wrong gain is at
// most the trickle since it last could be full. If the holder had to deny, one central bucket would have been
// dry. So the more it denied, the more is taken, but no more than was there when the bucket could be full. A
// holder that comes back first, and finds no other, stands for all. Later ones may not take what the bucket
// gains from then on.
func (x *step) overdraw(end, over, spent int64) {
	if end == x.t || x.Algorithm == limit.FixedWindow {
		x.Level = max(x.Level-over, x.floor())
		return
	}
	denied := x.denied * limit.Micro
	drew := max(x.rec.Lease.Trickle, x.rec.Lease.Fallback)
	recent := min(over, mulDiv(drew, x.t-max(end, min(x.Since, x.t)), 1e6))
	x.Level = max(x.Level-recent, x.floor())
	if x.Level > 0 && denied > 0 {
		take := mulDiv(over-recent, denied, spent+denied)
		if lent := drew; x.Out.Trickle == 0 && lent > 0 {
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
