package agent

import (
	"math/bits"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// follow takes what the agent itself goes by from a limit that changed to what the scope goes by. What is leased
// shrinks with the limit at once, without a word from the server: every agent keeps the same
// part of its stock, so that all stocks together are within the new burst, and trickles
// within the new rate. The store learns of it at the next renewal, as of tokens that were not
// spent. A limit that grew is renewed soon, and nothing that the old one denied stands.
// Of slots nothing is spent by another algorithm, and into slots nothing trickles.
func (of *Bucket) follow(old *terms) {
	b := of.open(new(hand))
	defer b.close()
	b.adoptLocked()
	if b.slots != old.slots {
		if b.slots {
			b.outside -= b.unleased // the next renewal tells of it: no lease of slots pays for what was used
		}
		b.unleased = 0
	}
	if b.counting {
		return
	}
	b.denyUntil, b.unitAt = 0, 0
	b.reopenLocked()
	stock := fraction{b.capacity, old.capacity}
	flow := ratio(float64(b.terms.rate.Units)*float64(old.rate.Per), float64(old.rate.Units)*float64(b.terms.rate.Per))
	switch {
	case old.slots && !b.slots:
		stock = none // slots that nobody is in are nothing to spend
	case b.slots && !old.slots:
		flow = none // a slot comes back from a request, or from the store
	}
	b.bringLocked()
	have := b.foldLocked()
	cut := have - stock.of(have)
	cut -= b.cell.credit(-cut) // what was spent meanwhile is short
	b.trickle, b.room = flow.of(b.trickle), stock.of(b.room)
	if b.spans {
		b.rest, b.share, b.next = stock.of(b.rest), stock.of(b.share), stock.of(b.next)
		b.turned = max(b.turned-cut, 0)
	}
	edges := old.edgesOf(b.terms)
	if !edges {
		b.next = 0 // of a window that never begins: the one under way goes on, or is another's
	}
	if b.ask != nil {
		b.ask.noNext = b.ask.noNext || !edges
		// Its answer may be of the old limit. What was cut is not part of what it replaces.
		b.ask.stock -= cut
		b.ask.inUse -= cut
		b.ask.shrink(stock, flow)
	}
}

// edgesOf reports whether windows begin and end when they do under the other terms.
func (t *terms) edgesOf(o *terms) bool {
	was, is := &t.rule.Limit, &o.rule.Limit
	return was.Algorithm == is.Algorithm && was.Zone == is.Zone && t.rate.Per == o.rate.Per && t.rate.Calendar == o.rate.Calendar
}

// fraction is how much of something is left; the zero fraction, and more than all, is all.
type fraction struct{ part, whole int64 }

var none = fraction{0, 1}

// ratio is a to b, rounded down.
func ratio(a, b float64) fraction {
	const grain = 1 << 40
	if a >= b {
		return fraction{}
	}
	return fraction{int64(a / b * grain), grain}
}

// of is the fraction of n, rounded down; n is not negative.
func (f fraction) of(n int64) int64 {
	if f.part >= f.whole {
		return n
	}
	high, low := bits.Mul64(uint64(n), uint64(f.part))
	q, _ := bits.Div64(high, low, uint64(f.whole)) // it fits: the part is less than the whole
	return int64(q)
}

// and is both fractions, one after the other.
func (f fraction) and(o fraction) fraction {
	switch {
	case f.part >= f.whole:
		return o
	case o.part >= o.whole:
		return f
	}
	return ratio(float64(f.part)*float64(o.part), float64(f.whole)*float64(o.whole))
}

// CapacityOf is the most units that a bucket of the limit holds, and so what a new one has; 0 where nothing says so.
func CapacityOf(h *limit.Held) int64 {
	switch h.Rule.Limit.Algorithm {
	case limit.FixedWindow, limit.SlidingWindow, limit.SlidingWindowLog:
		return h.Rate.Units
	case limit.Concurrency:
		return h.Rule.Limit.Slots
	default:
		return h.Burst
	}
}
