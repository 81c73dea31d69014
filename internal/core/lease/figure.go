package lease

import "github.com/f4ee788f/quota/internal/core/limit"

// Where a limit feeds a meter, the ledger also knows what was used of a window, as far as agents have settled.
// The step takes the ledger's figure where the store's own is not good enough:
//
//   - The store does not remember the window from its start. The first renewal is answered ErrUnsure, and comes
//     again with the figure, which is taken off.
//   - The store forgot the bucket: an agent proved it, or Memory says so. Then the figure lacks what agents
//     have not settled yet. Until a figure is complete through the loss, agents get what they declare, and
//     others what epsilon allows. If some agent stays silent, the ledger is complete only once that agent is
//     declared lost. So a figure that was asked for figureWait later counts as it is. Only time in which agents
//     could settle counts as waiting. No agent is silent while the ledger is away, or while all agents stand
//     still.
//   - A holder was silent until its tokens were nobody's: they were spent or not. If it comes back it says
//     (level.go). If the store no longer knows it, its reported use may be in the window's first figure as
//     well. Once too little is left for who waits, and the ledger is complete past all but what is out, the figure is
//     the truth. Units that it does not list are granted again. The figure may be too small if the limit's meter or
//     the tenant's place in the tree changed within the window. So what known holders reported is never granted
//     again.
//
// At any time no more may be granted than the window's units less the figure.

const (
	// figureWait is the time after a loss from which a figure counts although it is not complete through the
	// loss, in microseconds. Agents settle every ten seconds.
	figureWait = 30_000_000
	// figureSkew is the largest distance between agents' clocks and the store's for which a figure is the
	// truth, in microseconds. The ledger is complete by agents' clocks.
	figureSkew = 15_000_000
	// figureEvery is how often the holders of a window with lapsed tokens ask again, in microseconds.
	figureEvery = 15_000_000
)

// unsure reports whether the store would begin a bucket in a window of unknown use, and nobody asked the
// ledger.
func (r *Renewal) unsure(now int64) bool {
	start := r.Spec.WindowStart
	if now >= r.Spec.WindowEnd {
		start = r.Spec.WindowEnd
	}
	return r.Spec.Ledgered && start < r.Memory.Since && r.Figure.Window != start
}

// doubt begins a Ledgered window of unknown use.
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
			x.Lapsed = true // the window's first figure may have it as well: then it is taken off twice
		case x.windowed(x.r.Window) && x.windowed(x.rec.Window) || x.r.Window == 0:
			x.Spent = min(x.Spent+x.spent*limit.Micro, limit.MaxUnits*limit.Micro)
		}
	}
	if f.Window != x.Window || f.Through == 0 {
		return
	}
	used := min(f.Used, limit.MaxUnits) * limit.Micro
	if x.void() && f.Whole && f.Through >= x.Moved+figureSkew {
		x.Level = max(x.Level, x.burst-max(used, x.Spent)-whole(x.Out.Stock))
		x.Lapsed, x.Returned = false, x.t
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

// waited reports whether every agent that did not settle was silent for figureWait since the loss. The figure
// was asked for that much later, and agents could settle all that time. The store's clock alone does not tell:
// it goes on while no agent runs.
func (x *step) waited() bool {
	f := &x.r.Figure
	return min(x.now-f.Age-x.Unsure, f.Unbroken) >= figureWait
}

// void reports whether tokens of a window lapsed, and neither what is left nor what is out is enough for a request that
// waits. Then the ledger may know of units that were not spent. It cannot tell if the limit lends, or prorates the
// window.
func (x *step) void() bool {
	need := max(x.r.Largest, 1) * limit.Micro
	return x.Lapsed && x.Out.Stock < need && x.Level < need && x.Unsure == 0 &&
		x.r.Spec.Borrow == 0 && !x.r.Spec.Prorate
}

// unsure is Grant.Unsure.
func (x *step) unsure(g *Grant) int64 {
	// Stock is out until it is told of. What waiting requests spend on arrival is in no sum.
	if g.Tokens*limit.Micro > x.next.Lease.Stock-x.keeps-x.r.Fraction {
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
