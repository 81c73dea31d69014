package lease

import "github.com/f4ee788f/quota/internal/core/limit"

// A store is not the only one that knows what was used of a window: where the limit feeds a meter, the ledger
// does, for all that agents have settled. Its figure is asked for where the store's own is not good enough:
//
//   - a bucket begins in a window that the store does not remember from its start. The first renewal is
//     answered ErrUnsure, and comes again with the figure, which is taken off.
//   - the store forgot it, which an agent proved or Memory says. Then what agents have not settled yet is missing
//     from the figure: until one is complete through the loss, others get what epsilon allows, and
//     agents what they declare. Should some agent stay silent, the ledger is complete only when that is lost too:
//     a figure that was asked for figureWait later counts as it is. Only time in which agents could settle is
//     waited: none is silent while the ledger is away, or all stand still.
//   - a holder was silent until its tokens were nobody's. They were spent or not. If it comes back it says (level.go). Or one that is
//     not known here reports what it spent, which the figure that the window began with may have as well. When nothing is left,
//     nothing is out, and the ledger is complete past all of it, the figure is the truth: what it lacks is there
//     to be granted. It may be of less than all that was used, where the limit's meter or the tenant's
//     place in the tree changed in the middle of the window: what holders that are known reported is never granted again.
//
// At any time no more may be granted than the window's units less the figure.

const (
	// figureWait is for how long after a loss its figure has to be complete through it, in microseconds: agents
	// settle every ten seconds.
	figureWait = 30_000_000
	// figureSkew is how far the clocks of agents, by which the ledger is complete, and the store's may
	// be apart for a figure to be the truth, in microseconds.
	figureSkew = 15_000_000
	// figureEvery is how often the holders of a window that tokens lapsed of ask again, in microseconds.
	figureEvery = 15_000_000
)

// unsure reports whether the store would have to begin a bucket in a window of which it does not know what is
// used, and nobody asked the ledger.
func (r *Renewal) unsure(now int64) bool {
	start := r.Spec.WindowStart
	if now >= r.Spec.WindowEnd {
		start = r.Spec.WindowEnd
	}
	return r.Spec.Ledgered && start < r.Memory.Since && r.Figure.Window != start
}

// doubt begins a Ledgered window of which it is not known what is used.
func (x *step) doubt(born, forgotten bool) {
	switch {
	case forgotten:
		x.Unsure = x.now
	case born && x.Window < x.r.Memory.Since && x.Unsure == 0:
		x.Unsure = 1 // any figure will do: nothing tells that there was a loss
	default:
		return
	}
	x.withhold(whole(mulDiv(x.burst, x.r.Spec.EpsilonPPM, limit.Micro)))
}

// hear takes the ledger's figure into account, after what the holder reported.
func (x *step) hear() {
	f := &x.r.Figure
	if x.spent > 0 {
		x.Moved = x.now
		switch {
		case x.rec == nil:
			x.Lapsed = true // a figure that the window began with may have it as well: it is taken off twice
		case x.windowed(x.r.Window) && x.windowed(x.rec.Window) || x.r.Window == 0:
			x.Spent = min(x.Spent+x.spent*limit.Micro, limit.MaxUnits*limit.Micro)
		}
	}
	if f.Window != x.Window || f.Through == 0 {
		return
	}
	used := min(f.Used, limit.MaxUnits) * limit.Micro
	if x.void() && f.Whole && f.Through >= x.Moved+figureSkew {
		x.Level, x.Lapsed, x.Returned = max(x.Level, x.burst-max(used, x.Spent)), false, x.t
	}
	if x.Unsure > 0 && (f.Through >= x.Unsure || x.waited()) {
		x.Unsure, x.Spent = 0, max(x.Spent, used)
		if x.t >= x.Suspect {
			x.releaseWithheld()
		}
	}
	if over := x.Level + x.Withheld - (x.burst - used); over > 0 && !x.r.Spec.Prorate {
		n := min(over, x.Withheld)
		x.Withheld -= n
		x.Level = max(x.Level-(over-n), x.floor())
		x.Spent = max(x.Spent, used)
	}
}

// waited reports whether who could have settled by the figure, and did not, was silent for figureWait since the loss: it
// was asked for so much later, and agents could settle all that time. The store's clock alone does not tell, for it goes
// on while nobody lives.
func (x *step) waited() bool {
	f := &x.r.Figure
	return min(x.now-f.Age-x.Unsure, f.Unbroken) >= figureWait
}

// void reports whether tokens of a window lapsed, and nothing of it is left or out: the ledger may know of some that
// were not spent. Where the window's units are not just the limit's, it cannot tell.
func (x *step) void() bool {
	return x.Lapsed && x.Out.Stock < limit.Micro && x.Level < limit.Micro && x.Unsure == 0 &&
		x.r.Spec.Borrow == 0 && !x.r.Spec.Prorate
}

// unsure is Grant.Unsure.
func (x *step) unsure(g *Grant) int64 {
	if g.Tokens > 0 || g.Next > 0 {
		x.Moved = x.now
	}
	switch {
	case x.Unsure > 0:
		return x.Unsure
	case x.void():
		return x.Moved + figureSkew
	}
	return 0
}
