package bucket

import "github.com/f4ee788f/quota/internal/core/limit"

// Follow goes by other terms, for the limit changed. A lease shrinks with the limit at once, without a word from the
// server. Every agent keeps the same part of its stock, so all stocks together are within the new burst, and trickles
// within the new rate. The store learns of the cut at the next renewal, as tokens that were not spent. A limit that
// grew is renewed soon, and no denial of the old one stands. Slots do not become tokens, nor tokens slots.
func (b *Bucket) Follow(t *Terms) {
	defer b.enter().leave()
	old := b.Terms
	b.goByLocked(t)
	b.credit = min(b.credit, t.credit.Units)
	if b.slots != old.slots {
		if b.slots {
			b.outside -= b.unleased // the next renewal tells of it: no lease of slots pays for units used
		}
		b.unleased = 0
	}
	if b.counting {
		return
	}
	b.undenyLocked()
	stock := limit.FractionOf(b.capacity, old.capacity)
	flow := limit.Ratio(float64(t.Rate.Units)*float64(old.Rate.Per), float64(old.Rate.Units)*float64(t.Rate.Per))
	switch {
	case old.slots && !b.slots:
		stock = limit.Nothing // slots that nobody is in are nothing to spend
	case b.slots && !old.slots:
		flow = limit.Nothing // a slot comes back from a request, or from the store
	}
	b.bringLocked()
	have := b.foldLocked()
	cut := have - stock.Of(have)
	cut -= b.stock.credit(-cut) // short: units spent meanwhile
	b.trickle, b.room = flow.Of(b.trickle), stock.Of(b.room)
	b.fallback = float32(flow.Of(int64(b.fallback)))
	b.share, b.next = stock.Of(b.share), stock.Of(b.next)
	b.turned = max(b.turned-cut, 0)
	was, is := &old.Rule.Limit, &t.Rule.Limit
	edges := was.Algorithm == is.Algorithm && was.Zone == is.Zone &&
		old.Rate.Per == t.Rate.Per && old.Rate.Calendar == t.Rate.Calendar // they are when they were
	if !edges {
		b.next = 0 // its window never begins: the one under way goes on, or is another's
	}
	if b.ask != nil {
		b.ask.noNext = b.ask.noNext || !edges
		// Its answer may be of the old limit. It does not replace the units that were cut.
		b.ask.Held -= cut
		b.ask.inUse -= cut
		b.ask.stock, b.ask.flow = b.ask.stock.And(stock), b.ask.flow.And(flow)
	}
}
