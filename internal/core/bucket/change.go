package bucket

import "math/bits"

// Follow goes by other terms, for the limit changed. What is leased
// shrinks with the limit at once, without a word from the server: every agent keeps the same
// part of its stock, so that all stocks together are within the new burst, and trickles
// within the new rate. The store learns of it at the next renewal, as of tokens that were not
// spent. A limit that grew is renewed soon, and nothing that the old one denied stands.
// Of slots nothing is spent by another algorithm, and into slots nothing trickles.
func (b *Bucket) Follow(t *Terms) {
	b.mu.Lock()
	defer b.leave()
	old := b.Terms
	b.goByLocked(t)
	if b.slots != old.slots && b.unleased != 0 {
		if b.slots {
			b.own().outside -= b.unleased // the next renewal tells of it: no lease of slots pays for what was used
		}
		b.own().unleased = 0
	}
	if b.counting {
		return
	}
	b.undenyLocked()
	stock := fraction{b.capacity, old.capacity}
	flow := ratio(float64(t.Rate.Units)*float64(old.Rate.Per), float64(old.Rate.Units)*float64(t.Rate.Per))
	switch {
	case old.slots && !b.slots:
		stock = nothing // slots that nobody is in are nothing to spend
	case b.slots && !old.slots:
		flow = nothing // a slot comes back from a request, or from the store
	}
	b.bringLocked()
	have := b.foldLocked()
	cut := have - stock.of(have)
	cut -= b.stock.credit(-cut) // what was spent meanwhile is short
	b.trickle, b.room = flow.of(b.trickle), stock.of(b.room)
	if b.spans {
		r := b.own()
		r.rest, r.share, r.next = stock.of(b.rest), stock.of(b.share), stock.of(b.next)
		r.turned = max(b.turned-cut, 0)
	}
	edges := old.edgesOf(t)
	if !edges {
		b.noNextLocked() // of a window that never begins: the one under way goes on, or is another's
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
func (t *Terms) edgesOf(o *Terms) bool {
	was, is := &t.Rule.Limit, &o.Rule.Limit
	return was.Algorithm == is.Algorithm && was.Zone == is.Zone && t.Rate.Per == o.Rate.Per && t.Rate.Calendar == o.Rate.Calendar
}

// fraction is how much of something is left; the zero fraction, and more than all, is all.
type fraction struct{ part, whole int64 }

var nothing = fraction{0, 1}

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
