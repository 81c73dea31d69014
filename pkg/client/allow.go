package client

import (
	"context"
	"math/bits"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Allow asks for one unit; see AllowN.
//
// It is allow of one unit, written out: a call would have to carry all that is in hand.
func (c *Client) Allow(ctx context.Context, attributes ...Attribute) Decision {
	a := attributesOf(attributes)
	k := agent.KeyOf(a)
	if c.special.Load() { // closed, or a switch is on
		return c.allowSlow(ctx, 1, a)
	}
	known, plain, again := c.reg.Recall(k, a)
	if known == nil {
		return c.allowAnew(ctx, 1, a, again)
	}
	if !plain.None() && plain.Take(1) {
		return Decision{Allowed: true, by: known}
	}
	return c.allowRecalled(ctx, 1, a, known, plain)
}

// AllowN decides a request that costs n units: all limits that hold it must have
// them, or none is taken. It waits for the server, no longer than ctx and
// WithMaxWait, only where nothing is leased yet: the first request of a bucket,
// or each of a small limit. With n = 0 it tells whether one unit would be
// allowed as far as is known here, and takes nothing. n below 0 or above
// 1,000,000,000 is denied as invalid.
//
// The attributes are not kept. It allocates nothing while leases last, but for slots, and for what tells of several limits where
// they did not allow a request together before.
func (c *Client) AllowN(ctx context.Context, n int64, attributes ...Attribute) Decision {
	a := attributesOf(attributes)
	return c.allow(ctx, n, a, agent.KeyOf(a))
}

// onStack is how many limits a request may meet without allocating.
const onStack = 8

// hold is a limit that a request has met, and the bucket that it asks.
type hold struct {
	item  *agent.Item
	entry *agent.Entry
}

// allow decides a request of this key.
func (c *Client) allow(ctx context.Context, n int64, a []limit.Attribute, k agent.Key) Decision {
	if n < 1 || n > limit.MaxUnits || c.special.Load() { // closed, or a switch is on
		return c.allowSlow(ctx, n, a)
	}
	known, plain, again := c.reg.Recall(k, a)
	if known == nil {
		return c.allowAnew(ctx, n, a, again)
	}
	if !plain.None() && plain.Take(n) {
		return Decision{Allowed: true, by: known}
	}
	return c.allowRecalled(ctx, n, a, known, plain)
}

// allowRecalled decides a request that is known; where it is Plain its one bucket's cell had not the units.
func (c *Client) allowRecalled(ctx context.Context, n int64, a []limit.Attribute, known *agent.Resolution, plain agent.Cell) Decision {
	if !plain.None() {
		return c.allowPlain(ctx, n, a, known, plain)
	}
	if !known.Slots() {
		if i := known.Closed(); i >= 0 && n == 1 && !c.lost.Load() {
			if v, _, shut := c.shutBy(known, i, known.Cell(i), nil); shut {
				return Decision{RetryAfter: time.Duration(v.RetryAfter) * time.Microsecond, by: known.Entry(i)}
			}
		}
		taken := known.Take(n)
		if taken == known.Limits() {
			return Decision{Allowed: true, by: known}
		}
		return c.allowKnown(ctx, n, a, known, taken)
	}
	return c.allowKnown(ctx, n, a, known, -1)
}

// allowPlain decides a request that is Plain and whose cell had not the units: it is takeAll of one bucket of which nothing is announced.
func (c *Client) allowPlain(ctx context.Context, n int64, a []limit.Attribute, known *agent.Resolution, plain agent.Cell) Decision {
	var now int64
	if n == 1 && plain.Shut() && !c.lost.Load() {
		v, at, shut := c.shutBy(known, 0, plain, nil)
		if shut {
			return Decision{RetryAfter: time.Duration(v.RetryAfter) * time.Microsecond, by: known}
		}
		now = at // it is over
	}
	h := hold{known.Item(0), known.Entry(0)}
	known.FoundDry() // first, for a clock that is read waits for it all
	if known.TakeMoved(plain, 0, n) {
		return Decision{Allowed: true, by: known}
	}
	if h.item.Soft {
		return c.allowKnown(ctx, n, a, known, 0)
	}
	if now == 0 {
		var v agent.Verdict
		var shut bool
		if v, now, shut = c.shut(h.entry, n); shut {
			known.WasShut(true)
			return Decision{RetryAfter: time.Duration(v.RetryAfter) * time.Microsecond, by: h.entry}
		}
	}
	known.WasShut(false)
	state := isGone // the bucket is no more
	switch v, lost := c.refillAt(h.entry, now, n, false); v.Outcome {
	case agent.Admitted:
		return Decision{Allowed: true, by: known}
	case agent.Denied:
		return c.denial(h, v, lost)
	case agent.Wait:
		state = toldToWait
	}
	set := known.Set()
	d := c.continueSlow(ctx, n, a, set, []hold{h}, set.Place(h.item), state)
	c.reg.Forget(known)
	return d
}

// allowAnew finds the buckets of a request that is not known; again says that it is to be from now on.
func (c *Client) allowAnew(ctx context.Context, n int64, a []limit.Attribute, again bool) Decision {
	set := c.reg.Find(agent.Lookup(a, AttrTenant))
	if set == nil || set.Refusal != agent.NotRefused {
		return c.allowSlow(ctx, n, a)
	}
	var holds [onStack]hold
	k, strictest := 0, 0
	// All buckets are found before the first is asked: finding is waiting for memory,
	// and so they are waited for together.
	for first := 0; first < len(set.Items); first += limit.MatcherRules {
		for met := set.Match(first, a); met != 0; met &= met - 1 {
			i := first + bits.TrailingZeros64(met)
			it := &set.Items[i]
			if it.Vet {
				switch vet(it, a) {
				case passedBy:
					continue
				case suspect:
					return c.continueSlow(ctx, n, a, set, nil, 0, notAsked)
				}
			}
			if k == onStack {
				return c.continueSlow(ctx, n, a, set, nil, 0, notAsked)
			}
			e := c.reg.Entry(&set.List, i, a)
			if e == nil {
				return c.continueSlow(ctx, n, a, set, nil, 0, notAsked)
			}
			e.Near()
			holds[k] = hold{it, e}
			if it.Rank < holds[strictest].item.Rank {
				strictest = k
			}
			k++
		}
	}
	if again {
		c.remember(a, set, holds[:k], strictest)
	}
	d, _ := c.takeAll(ctx, n, a, set, holds[:k], strictest, nil, -1)
	return d
}

// allowKnown decides a request that was resolved before: the buckets before the refused one had the units, and that had
// not; -1 where none was asked.
func (c *Client) allowKnown(ctx context.Context, n int64, a []limit.Attribute, known *agent.Resolution, refused int) Decision {
	var holds [onStack]hold
	k := known.Limits()
	for i := range k {
		holds[i] = hold{known.Item(i), known.Entry(i)}
		holds[i].entry.Near()
	}
	d, ok := c.takeAll(ctx, n, a, known.Set(), holds[:k], known.Strictest(), known, refused)
	if !ok {
		c.reg.Forget(known)
	}
	return d
}

// remember keeps what a request was resolved to, where it may be.
func (c *Client) remember(a []limit.Attribute, set *agent.Set, holds []hold, strictest int) {
	var items [onStack]*agent.Item
	var entries [onStack]*agent.Entry
	for i, h := range holds {
		items[i], entries[i] = h.item, h.entry
	}
	c.reg.Remember(a, set, items[:len(holds)], entries[:len(holds)], strictest)
}

// takeAll decides a request with the buckets of all limits that it meets. It reports true when they had the
// units, and otherwise what became of the request, which others may have been found for. known is what says the same of
// the request; nil for nothing. The buckets before the refused one are not asked again; -1 for none.
func (c *Client) takeAll(ctx context.Context, n int64, a []limit.Attribute, set *agent.Set, holds []hold, strictest int, known *agent.Resolution, refused int) (d Decision, ok bool) {
	for j := max(refused, 0); j < len(holds); j++ {
		if h := holds[j]; j != refused {
			announce(h.item, h.entry, n)
			if h.entry.Take(n) {
				continue
			}
		}
		if d, ok = c.wasRefused(ctx, n, a, set, holds[:j+1]); !ok {
			return d, false
		}
	}
	for _, h := range holds {
		if h.item.Hold {
			h.entry.Release(n)
		}
	}
	if set.Trying {
		c.try(set, n, a, true)
	}
	if len(holds) == 0 {
		return c.nothingHolds(a), true
	}
	return Decision{Allowed: true, by: c.deciders(n, set, holds, strictest, known)}, true
}

// deciders is what a decision keeps of the buckets that allowed a request; see takeAll.
func (c *Client) deciders(n int64, set *agent.Set, holds []hold, strictest int, known *agent.Resolution) any {
	if set.Slots {
		if e := c.endingOf(holds, n); e != nil {
			return &origin{holds[strictest], othersOf(holds, strictest), e}
		}
	}
	switch {
	case known != nil:
		return known
	case len(holds) == 1:
		return holds[0].entry
	}
	own := 0 // which the fewest requests share, so that it is in the same company the most often
	for i := range holds {
		if holds[i].item.Values() > holds[own].item.Values() {
			own = i
		}
	}
	return holds[own].entry.With(agent.Company{Item: holds[strictest].item, Entry: holds[strictest].entry, Others: othersOf(holds, strictest)})
}

// wasRefused goes on where Take failed at the last of holds; the others' units are in hand. It reports true when
// the units could be had all the same, and otherwise what became of the request.
func (c *Client) wasRefused(ctx context.Context, n int64, a []limit.Attribute, set *agent.Set, holds []hold) (d Decision, ok bool) {
	last := len(holds) - 1
	h := holds[last]
	state := isGone // the bucket is no more
	switch v, lost := c.refill(h.entry, n, false); v.Outcome {
	case agent.Admitted:
		return d, true
	case agent.Denied:
		if h.item.Soft && !(lost && c.closes(h.item, h.entry)) {
			state = wasDenied
			break
		}
		for i, h := range holds {
			if i < last {
				c.putBack(h, n)
			}
			retract(h.item, h.entry, n)
		}
		if set.Trying {
			c.try(set, n, a, false)
		}
		return c.denial(h, v, lost), false
	case agent.Wait:
		state = toldToWait
	}
	return c.continueSlow(ctx, n, a, set, holds, set.Place(h.item), state), false
}

// putBack returns n units that were taken for a request that another limit denied.
func (c *Client) putBack(h hold, n int64) {
	if h.item.Slots {
		serve(h.entry.Cancel(n))
		c.spare(h.entry)
	} else {
		h.entry.PutBack(n)
	}
}

// announce says what has to be known before n units are taken; see agent.Item.
func announce(it *agent.Item, e *agent.Entry, n int64) {
	if it.Hold {
		e.Hold(n)
	}
	if it.Inherited {
		e.Inherit(n)
	}
}

// retract ends an announcement without units taken, or after they were put back.
func retract(it *agent.Item, e *agent.Entry, n int64) {
	if it.Inherited {
		e.Inherit(-n)
	}
	if it.Hold {
		e.Release(n)
	}
}

// refill asks a bucket again whose Take failed; the outcome Rematch says that it is
// no more, or the client is closed.
func (c *Client) refill(e *agent.Entry, n int64, patient bool) (v agent.Verdict, lost bool) {
	if patient {
		return c.refillAt(e, c.now(), n, true)
	}
	v, now, shut := c.shut(e, n)
	if shut {
		return v, false
	}
	return c.refillAt(e, now, n, false)
}

// refillAt is refill of a bucket that does not deny for certain.
func (c *Client) refillAt(e *agent.Entry, now, n int64, patient bool) (v agent.Verdict, lost bool) {
	if !e.Enter() {
		return agent.Verdict{Outcome: agent.Rematch}, false
	}
	if c.closed.Load() {
		e.Leave()
		return agent.Verdict{Outcome: agent.Rematch}, false
	}
	lost = c.lost.Load() || e.Lost()
	if v = e.Ask(now, n, lost, patient); v.Attend {
		c.attend(e)
	}
	e.Leave()
	return v, lost
}

// shut denies n units whose Take failed where they are one and that is certain, without announcing that it asks: nothing is admitted,
// and what is counted here is collected unless the bucket or the client came to its end before, which is looked up after it. On
// false the caller asks again, as of now, and one denial more may be counted.
func (c *Client) shut(e *agent.Entry, n int64) (v agent.Verdict, now int64, shut bool) {
	if n > 1 || c.lost.Load() || e.Lost() {
		return v, c.now(), false
	}
	if v, now, shut = c.shutBy(nil, 0, agent.Cell{}, e); shut && e.Dead() {
		return v, c.now(), false
	}
	return v, now, shut
}

// shutBy is shut by what the tokens of a limit of a request say, or else by a bucket.
func (c *Client) shutBy(known *agent.Resolution, i int, cell agent.Cell, e *agent.Entry) (v agent.Verdict, now int64, shut bool) {
	if now = c.now(); e == nil {
		v, shut = known.Shut(i, cell, now)
	} else {
		v, shut = e.Shut(now)
	}
	if shut && c.special.Load() {
		return v, c.now(), false
	}
	return v, now, shut
}

// denial is what a limit that denied says.
func (c *Client) denial(h hold, v agent.Verdict, lost bool) Decision {
	d := Decision{RetryAfter: time.Duration(v.RetryAfter) * time.Microsecond, by: h.speaks()}
	switch {
	case v.Never:
		d.Reason = ReasonTooLarge
	case lost && !h.entry.State(c.now()).Live:
		d.Reason = ReasonOutage
	}
	return d
}

// nothingHolds decides a request that no limit holds.
func (c *Client) nothingHolds(a []limit.Attribute) Decision {
	if agent.Lookup(a, AttrTenant) == "" {
		c.refused.Add(1)
		return Decision{Reason: ReasonNoTenant}
	}
	return Decision{Allowed: true, Reason: ReasonUnlimited}
}
