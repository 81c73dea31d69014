package client

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/reqcache"
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

// leg is a limit that a request has met, and the bucket that it asks.
type leg struct {
	item  *agent.Item
	entry *agent.Entry
}

// allow decides a request. One that came before and whose limits have the units is decided here; all others by request.
func (c *Client) allow(ctx context.Context, n int64, a []limit.Attribute) Decision {
	var r *request
	if n >= 1 && n <= limit.MaxUnits && !c.special.Load() { // closed, or a switch is on
		k := reqcache.KeyOf(a)
		known, again := c.reg.Recall(k, a)
		if known != nil {
			if d, ok := c.allowKnown(n, known); ok {
				return d
			}
			c.reg.Forget(k, known)
		}
		r = c.request(n, a)
		r.key, r.remembers = k, again
	} else {
		r = c.request(n, a)
	}
	return c.begun(ctx, r)
}

// allowKnown decides a request by the buckets that it came to before, where they have the units or one of them denies for
// certain. On false nothing is in hand.
func (c *Client) allowKnown(n int64, known *agent.Resolution) (d Decision, ok bool) {
	if known.Slots() {
		return d, false
	}
	if n == 1 {
		// Others' units are not taken where a limit denies for certain.
		if i := known.Dry(); i >= 0 && !known.Item(i).Soft {
			if v, _, shut := c.shut(known.Entry(i), 1); shut {
				return Decision{RetryAfter: time.Duration(v.RetryAfter) * time.Microsecond, by: leg{known.Item(i), known.Entry(i)}.speaks()}, true
			}
		}
	}
	taken := known.Take(n)
	if taken == known.Limits() {
		return Decision{Allowed: true, by: known}, true
	}
	for i := range taken + 1 {
		it, e := known.Item(i), known.Entry(i)
		if i < taken {
			e.PutBack(n)
		}
		if it.Inherited {
			e.Inherit(-n)
		}
		if it.Hold {
			e.Release(n)
		}
	}
	return d, false
}

// refill asks a bucket again whose Take failed; the outcome Rematch says that it is
// no more, or the client is closed.
func (c *Client) refill(e *agent.Entry, n int64, patient bool) (v bucket.Verdict, lost bool) {
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
func (c *Client) refillAt(e *agent.Entry, now, n int64, patient bool) (v bucket.Verdict, lost bool) {
	if !e.Enter() {
		return bucket.Verdict{Outcome: bucket.Rematch}, false
	}
	if c.closed.Load() {
		e.Leave()
		return bucket.Verdict{Outcome: bucket.Rematch}, false
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
func (c *Client) shut(e *agent.Entry, n int64) (v bucket.Verdict, now int64, shut bool) {
	now = c.now()
	if n > 1 || c.lost.Load() || e.Lost() {
		return v, now, false
	}
	v, shut = e.Shut(now)
	return v, now, shut && !e.Dead() && !c.special.Load()
}

// denial is what a limit that denied says.
func (c *Client) denial(h leg, v bucket.Verdict, lost bool) Decision {
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
