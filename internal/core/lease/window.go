package lease

import "github.com/f4ee788f/quota/internal/core/limit"

// nextLead is how long before its edge a fixed window's leases reach over it, at most a quarter of the window.
const nextLead = 2_000_000

// Each lease has a part of the next window. The holder goes over to it by itself when the window turns, whether or not a
// server answers. The store takes the parts of all leases that it keeps out of the new window when it begins. The holder
// renews soon after that, and has what it needs then. Out of contact for longer, a holder goes on with the same part of
// each further window, unless the limit is strict.

// turn begins a new window when the store's clock has come to it.
func (x *step) turn() {
	p := &x.r.Spec
	if !p.Windowed() && !p.Sliding() {
		return
	}
	start, end := x.present()
	switch {
	case p.Sliding():
		x.turnSliding(start, end)
		return
	case start <= x.Window:
		if end > x.Window { // else a clock is behind that says so
			x.WindowEnd = end // windows changed length or start: this one goes on until the next begins
		}
		return
	}
	// What was borrowed in the old window is taken out of the new one. So is what was granted of the new one
	// already.
	borrowed := min(x.Level+x.Forgiven, 0)
	if p.Borrow == 0 {
		borrowed = 0
	}
	x.Window, x.WindowEnd = start, end
	silent := x.turnLeases()
	x.Level = x.burst + max(borrowed, -p.Borrow*limit.Micro) - x.Out.Stock - x.Out.Pile
	x.Withheld, x.Forgiven = 0, 0
	x.Unsure, x.Moved, x.Lapsed, x.Spent, x.Returned = 0, x.now, false, 0, 0
	if silent > 0 && p.EpsilonPPM > 0 {
		x.withhold(max(x.Level-silent, 0))
		x.Suspect = max(x.Suspect, x.t+LongTerm)
	}
}

// turnLeases leaves leases their parts of the window that begins. It returns the parts of those that ended before, and
// that no step has dropped since. A holder in contact would have renewed: it may be out of contact, with its part.
func (x *step) turnLeases() (silent int64) {
	x.Out = Sums{}
	for i := range x.Ring {
		slot := &x.Ring[i]
		if slot.At*SlotLen <= x.begin() {
			silent += slot.Next
			slot.Next = 0
		}
		slot.Sums = slot.turned()
		x.Out.Add(slot.Sums)
	}
	return silent
}

// begin is when the window began, by the bucket's clock.
func (x *step) begin() int64 { return x.t - (x.now - x.Window) }

// had is the most that the holder had of the window after that of its record, when it sent its renewal. It is what the
// record's grant says if it has heard of that.
func (x *step) had() int64 {
	if x.rec.Grant.Number == x.r.Heard {
		return x.rec.Grant.Next * limit.Micro
	}
	return x.rec.Lease.Next
}

// notYet is putBack for a holder that is in another window. If that is over, it may go over to its part of the present one
// before the answer is there. If that is yet to come, the store's clock was set back. What the holder tells of its part
// is kept until the store is there.
func (x *step) notYet(spent int64) {
	rec, part := x.rec, x.rec.Lease.Next
	switch {
	case x.r.Window == 0:
		return // it never heard of any
	case x.r.Window > x.Window && !x.anew():
		x.next.Foretold = rec.Foretold + spent
	}
	if rec.Window == x.Window {
		part = max(rec.Lent-spent, 0) // it has not heard of that
	}
	if rec.Slot*SlotLen > x.begin() && !x.anew() {
		x.Level += part // else it is not out of the level
	}
	if rec.Slot*SlotLen > x.t {
		x.keeps = part
	}
}

// putPartBack is putBack for a holder that went over to its part of the window by itself.
func (x *step) putPartBack(spent, held int64) {
	rec, part := x.rec, x.rec.Lease.Next
	kept := rec.Slot*SlotLen > x.begin() // so its part is out of the level
	have := part
	if !kept {
		have = min(part, x.Withheld)
	}
	part = x.had()
	used := part - min(held, part)
	before := max((x.Window-rec.Window)/(x.WindowEnd-x.Window)-1, 0) // windows that it spent a part of each
	over := max(spent-rec.Lent-before*part-used, 0)                  // this was not its own
	if larger := rec.Lease.Next; x.r.Spec.EpsilonPPM == 0 && part < larger {
		// It may have gone over before it heard of the smaller part. What it spent of the larger one must not pass for
		// what it was lent of the old window, which came too late.
		over = max(over, min(spent, larger-min(held, larger))-used)
	}
	switch {
	case x.anew():
		over = 0
	case rec.Slot*SlotLen <= x.t && rec.Start < x.Returned:
		have, used = 0, 0 // what lapsed was granted again, as the ledger says
	default:
		used = min(used, rec.Foretold+spent) // it may hold less because the limit shrank
	}
	if !kept {
		x.Withheld -= have
	}
	x.keeps = min(held, have)
	x.Level = max(x.Level+have-used-over, x.floor())
	x.clip(x.t)
}

// present is the window that the store's clock is in, by the limit.
func (x *step) present() (start, end int64) {
	p := &x.r.Spec
	if x.now >= p.WindowEnd {
		return p.WindowEnd, p.NextWindowEnd
	}
	return p.WindowStart, p.WindowEnd
}

// newcomers is the part of a window that nobody has when it begins, as a divisor. Agents that ask for the first time find
// something there before those that have all the rest renew.
const newcomers = 8

// grantNext gives the holder its part of the next window: its share, as far as others have not had theirs. The part of
// its last lease stays out as well until it has heard of this one.
func (x *step) grantNext(mine, all int64) int64 {
	lent, had := x.burst-x.burst/newcomers, int64(0)
	next := whole(min(mulDiv(lent, mine, all), lent-x.Out.Next))
	if rec := x.rec; rec != nil && rec.NextWindow == x.WindowEnd && rec.Slot*SlotLen > x.t {
		had = x.had()
	}
	if next < fewest*limit.Micro {
		next = 0
	}
	if x.next.Lease.Next = max(next, had); x.next.Lease.Next > 0 {
		x.next.NextWindow = x.WindowEnd
	}
	return next / limit.Micro
}
