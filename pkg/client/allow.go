package client

import (
	"context"
	"math/bits"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/reqcache"
	"github.com/f4ee788f/quota/internal/core/session"
)

// Allow asks for one unit; see AllowN.
func (c *Client) Allow(ctx context.Context, attributes ...Attribute) Decision {
	return c.allow(ctx, 1, attributesOf(attributes))
}

// AllowN decides a request that costs n units: all limits that hold it must have
// them, or none is taken. It waits for the server, no longer than ctx and
// WithMaxWait, only where nothing is leased yet: the first request of a bucket,
// or each of a small limit. With n = 0 it tells whether one unit would be
// allowed as far as is known here, and takes nothing. n below 0 or above
// 1,000,000,000 is denied as invalid.
//
// The attributes are not kept. It allocates nothing while leases last, but for slots, and for a request of several limits that
// did not come before.
func (c *Client) AllowN(ctx context.Context, n int64, attributes ...Attribute) Decision {
	return c.allow(ctx, n, attributesOf(attributes))
}

// Peek tells whether a request of n units would be allowed, as far as is known here. It takes nothing, and waits only for a
// tenant that is not known yet.
func (c *Client) Peek(ctx context.Context, n int64, attributes ...Attribute) Decision {
	r := c.request(n, attributesOf(attributes))
	r.peeks = true
	return c.begun(ctx, r)
}

// onStack is how many limits a request may meet without allocating.
const onStack = 8

// hold is a limit that a request has met, and the bucket that it asks.
type hold struct {
	item  *agent.Item
	entry *agent.Entry
}

// allow decides a request.
func (c *Client) allow(ctx context.Context, n int64, a []limit.Attribute) Decision {
	if n < 1 || n > limit.MaxUnits || c.special.Load() { // closed, or a switch is on
		return c.allowSlow(ctx, n, a)
	}
	k := reqcache.KeyOf(a)
	known, again := c.reg.Recall(k, a)
	switch {
	case known == nil:
		return c.allowAnew(ctx, n, a, k, again)
	case known.Slots():
		return c.allowKnown(ctx, n, a, k, known, -1)
	case known.Limits() > 1 && n == 1:
		// Others' units are not taken where a limit denies for certain.
		if i := known.Dry(); i >= 0 && !known.Item(i).Soft {
			if v, _, shut := c.shut(known.Entry(i), 1); shut {
				return Decision{RetryAfter: time.Duration(v.RetryAfter) * time.Microsecond, by: hold{known.Item(i), known.Entry(i)}.speaks()}
			}
		}
	}
	if taken := known.Take(n); taken < known.Limits() {
		return c.allowKnown(ctx, n, a, k, known, taken)
	}
	return Decision{Allowed: true, by: known}
}

// allowAnew finds the buckets of a request that is not known; again says that it is to be from now on.
func (c *Client) allowAnew(ctx context.Context, n int64, a []limit.Attribute, key reqcache.Key, again bool) Decision {
	set := c.reg.Find(agent.Lookup(a, AttrTenant))
	if set == nil || set.Refusal != agent.NotRefused {
		return c.allowSlow(ctx, n, a)
	}
	var holds [onStack]hold
	k, strictest := 0, 0
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
			holds[k] = hold{it, e}
			if it.Rank < holds[strictest].item.Rank {
				strictest = k
			}
			k++
		}
	}
	if again {
		c.remember(key, a, set, holds[:k], strictest)
	}
	d, _ := c.takeAll(ctx, n, a, set, holds[:k], strictest, nil, -1)
	return d
}

// allowKnown decides a request that was resolved before: the buckets before the refused one had the units, and that had
// not; -1 where none was asked.
func (c *Client) allowKnown(ctx context.Context, n int64, a []limit.Attribute, key reqcache.Key, known *agent.Resolution, refused int) Decision {
	var holds [onStack]hold
	k := known.Limits()
	for i := range k {
		holds[i] = hold{known.Item(i), known.Entry(i)}
	}
	d, ok := c.takeAll(ctx, n, a, known.Set(), holds[:k], known.Strictest(), known, refused)
	if !ok {
		c.reg.Forget(key, known)
	}
	return d
}

// remember keeps what a request was resolved to, where it may be.
func (c *Client) remember(key reqcache.Key, a []limit.Attribute, set *agent.Set, holds []hold, strictest int) {
	var items [onStack]*agent.Item
	var entries [onStack]*agent.Entry
	for i, h := range holds {
		items[i], entries[i] = h.item, h.entry
	}
	c.reg.Remember(key, a, set, items[:len(holds)], entries[:len(holds)], strictest)
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
	return &origin{holds[strictest], othersOf(holds, strictest), nil}
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
		session.Serve(h.entry.Cancel(n))
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
	now = c.now()
	if n > 1 || c.lost.Load() || e.Lost() {
		return v, now, false
	}
	v, shut = e.Shut(now)
	return v, now, shut && !e.Dead() && !c.special.Load()
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
