package client

import (
	"context"
	"math/bits"
	"time"

	"github.com/f4ee788f/quota/internal/agent"
	"github.com/f4ee788f/quota/internal/limit"
)

// Allow asks for one unit; see AllowN.
func (c *Client) Allow(ctx context.Context, attributes ...Attribute) Decision {
	return c.allow(ctx, 1, attributes)
}

// AllowN decides a request that costs n units: all limits that hold it must have
// them, or none is taken. It waits for the server, no longer than ctx and
// WithMaxWait, only where nothing is leased yet: the first request of a bucket,
// or each of a small limit. With n = 0 it tells whether one unit would be
// allowed as far as is known here, and takes nothing. n below 0 or above
// 1,000,000,000 is denied as invalid.
//
// The attributes are not kept. It allocates nothing while leases last.
func (c *Client) AllowN(ctx context.Context, n int64, attributes ...Attribute) Decision {
	return c.allow(ctx, n, attributes)
}

// onStack is how many limits a request may meet without allocating.
const onStack = 8

// hold is a limit that a request has met, and the bucket that it asks.
type hold struct {
	item  *agent.Item
	entry *agent.Entry
}

func (c *Client) allow(ctx context.Context, n int64, attrs []Attribute) Decision {
	a := attributesOf(attrs)
	if n < 1 || n > limit.MaxUnits || c.special.Load() { // closed, or a switch is on
		return c.allowSlow(ctx, n, a)
	}
	set := c.reg.Find(agent.Lookup(a, AttrTenant))
	if set == nil || set.Refusal != agent.NotRefused {
		return c.allowSlow(ctx, n, a)
	}
	var holds [onStack]hold
	var at [onStack]uint16 // of set.Items
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
			holds[k], at[k] = hold{it, e}, uint16(i)
			if it.Rank < holds[strictest].item.Rank {
				strictest = k
			}
			k++
		}
	}
	for j := range k {
		it, e := holds[j].item, holds[j].entry
		announce(it, e, n)
		if e.Take(n) {
			continue
		}
		switch v, lost := c.refill(e, n, false); v.Outcome {
		case agent.Admitted:
		case agent.Denied:
			if it.Soft {
				return c.continueSlow(ctx, n, a, set, holds[:j+1], int(at[j]), wasDenied)
			}
			for i, h := range holds[:j+1] {
				if i < j {
					putBack(h, n)
				}
				retract(h.item, h.entry, n)
			}
			if set.Trying {
				c.try(set, n, a, false)
			}
			return c.denial(hold{it, e}, v, lost)
		case agent.Wait:
			return c.continueSlow(ctx, n, a, set, holds[:j+1], int(at[j]), toldToWait)
		default: // the bucket is no more
			return c.continueSlow(ctx, n, a, set, holds[:j+1], int(at[j]), isGone)
		}
	}
	for i := range k {
		if holds[i].item.Hold {
			holds[i].entry.Release(n)
		}
	}
	if set.Trying {
		c.try(set, n, a, true)
	}
	if k == 0 {
		return c.nothingHolds(a)
	}
	d := Decision{Allowed: true, held: held{c, holds[strictest]}}
	if k > 1 {
		d.others = othersOf(holds[:k], strictest)
	}
	if set.Slots {
		d.ending = endingOf(holds[:k], n)
	}
	return d
}

// putBack returns n units that were taken for a request that another limit denied.
func putBack(h hold, n int64) {
	if h.item.Slots {
		serve(h.entry.Cancel(n))
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
	if !e.Enter() {
		return agent.Verdict{Outcome: agent.Rematch}, false
	}
	if c.closed.Load() {
		e.Leave()
		return agent.Verdict{Outcome: agent.Rematch}, false
	}
	now := c.now()
	lost = c.lost.Load() || e.Lost()
	shut := false
	if n == 1 && !lost && !patient {
		v, shut = e.Shut(now)
	}
	if !shut {
		if v = e.Ask(now, n, lost, patient); v.Attend {
			c.attend(e)
		}
	}
	e.Leave()
	return v, lost
}

// shut denies one unit whose Take failed where no more than that is asked, and certain.
func (c *Client) shut(e *agent.Entry) bool {
	if c.special.Load() || c.lost.Load() || e.Lost() || !e.Enter() {
		return false
	}
	_, shut := e.Shut(c.now())
	e.Leave()
	return shut
}

// denial is what a limit that denied says.
func (c *Client) denial(h hold, v agent.Verdict, lost bool) Decision {
	d := Decision{RetryAfter: time.Duration(v.RetryAfter) * time.Microsecond, held: held{c, h}}
	if lost && !h.entry.State(c.now()).Live {
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
