package client

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
	"github.com/f4ee788f/quota/internal/core/reqcache"
)

// Allow asks for one unit; see AllowN.
func (c *Client) Allow(ctx context.Context, attributes ...Attribute) Decision {
	return c.allow(ctx, 1, nil, attributesOf(attributes))
}

// Decide decides a request that may have several costs: see AllowN, which decides one of requests alone. Each limit that
// applies takes the units that it makes of the costs; one that makes none of them takes nothing, and does not deny.
//
// A request that costs nothing only looks, as AllowN with n = 0 does. Costs that the policy does not name, one named
// twice, and units out of range are denied as ReasonInvalid.
func (c *Client) Decide(ctx context.Context, q Request) Decision {
	return c.allow(ctx, q.Units, q.Costs, attributesOf(q.Attributes))
}

// AllowN decides a request that costs n units: all limits that apply must have them, or none is taken. It waits for the
// server only where nothing is leased yet: at a bucket's first request, or at each request of a small limit. It waits
// no longer than ctx and WithMaxWait.
//
// With n = 0 it tells whether one unit would be allowed, as far as this client knows, and takes nothing. n below 0 or
// above 1,000,000,000 is denied as ReasonInvalid.
//
// The attributes are not kept. While leases last it allocates nothing, but for slots, and for a new request of several
// limits.
func (c *Client) AllowN(ctx context.Context, n int64, attributes ...Attribute) Decision {
	return c.allow(ctx, n, nil, attributesOf(attributes))
}

// allow decides a request. One that came before, and whose limits have the units, is decided here; any other by
// request.
func (c *Client) allow(ctx context.Context, n int64, costs []Cost, a []limit.Attribute) Decision {
	var k reqcache.Key
	repeated := false
	if n >= 0 && n <= limit.MaxUnits && n+int64(len(costs)) > 0 && !c.special.Load() { // closed, or a switch is on
		k = reqcache.KeyOf(a)
		var known *agent.Resolution
		var dry, ok bool
		var d Decision
		if known, dry, repeated = c.reg.Recall(k, a); known != nil {
			if len(costs) == 0 && !known.Weighs() {
				d, ok = c.allowKnown(n, known, dry)
			} else {
				d, ok = c.allowWeighed(n, costs, known, dry)
			}
			if ok {
				return d
			}
			repeated = known.Dead()
		}
	}
	r := c.request(n, costs, a)
	r.key, r.repeated = k, repeated
	return r.decide(ctx)
}

// allowKnown decides a request by the buckets that it came to before: all have the units, or one denies for certain. On
// false nothing is in hand.
func (c *Client) allowKnown(n int64, known *agent.Resolution, dry bool) (d Decision, ok bool) {
	if n == 1 {
		// A limit that denies for certain comes first: nothing is taken of the others in vain.
		if i := known.Dry(dry); i >= 0 && !known.Item(i).Soft {
			if v, _, shut := c.shut(known.Entry(i), 1); shut {
				return Decision{RetryAfter: micros(v.RetryAfter), by: sourceOf(known.Item(i), known.Entry(i))}, true
			}
		}
	}
	taken := known.Take(n, c.clock)
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

// allowWeighed is allowKnown where a limit's units may be others than those of requests. On false, too, nothing is in
// hand, and the costs may be invalid.
func (c *Client) allowWeighed(n int64, costs []Cost, known *agent.Resolution, dry bool) (d Decision, ok bool) {
	var a limit.Amounts
	if known.Costs().Amounts(&a, n, costsOf(costs)) != nil || nothing(n, costs) {
		return d, false
	}
	if !known.Weighs() {
		if n == 0 {
			return Decision{Allowed: true, by: known}, true // no limit counts what it costs
		}
		return c.allowKnown(n, known, dry)
	}
	// A limit that denies for certain comes first, as in allowKnown.
	if i := known.Dry(dry); i >= 0 && !known.Item(i).Soft {
		if n, _ := known.UnitsOf(i, &a); n == 1 {
			if v, _, shut := c.shut(known.Entry(i), 1); shut {
				return Decision{RetryAfter: micros(v.RetryAfter), by: sourceOf(known.Item(i), known.Entry(i))}, true
			}
		}
	}
	var units agent.Units
	taken := known.TakeEach(&a, &units, c.clock)
	if taken == known.Limits() {
		return Decision{Allowed: true, by: known}, true
	}
	for i := range taken + 1 {
		it, e := known.Item(i), known.Entry(i)
		if units[i] == 0 {
			continue
		}
		if i < taken {
			e.PutBack(units[i])
		}
		if it.Inherited {
			e.Inherit(-units[i])
		}
		if it.Hold {
			e.Release(units[i])
		}
	}
	return d, false
}

// refill asks a bucket again whose Take failed. The outcome Rematch says that it is no more, or the client is closed.
func (c *Client) refill(e *agent.Entry, n int64, patient bool) (v bucket.Verdict, lost bool) {
	now := c.reg.Now()
	if !patient {
		var shut bool
		if v, now, shut = c.shut(e, n); shut {
			return v, false
		}
	}
	if !c.enter(e) {
		return bucket.Verdict{Outcome: bucket.Rematch}, false
	}
	lost = c.lost.Load() || e.Lost()
	for {
		if v = e.Ask(now, n, lost, patient); v.Attend {
			c.session.Attend(e)
		}
		if !v.Here || e.InTime(n, v.Until, c.clock) {
			break
		}
		now = c.clock() // it stood still between looking at the clock and taking
	}
	e.Leave()
	return v, lost
}

// shut denies one unit whose Take failed, where an earlier denial makes that certain. It does not announce that it
// asks, for it admits nothing. Its count is collected unless the bucket or the client has ended, which is looked up
// afterwards. On false the caller asks again, as of now, and one denial more may be counted.
func (c *Client) shut(e *agent.Entry, n int64) (v bucket.Verdict, now int64, shut bool) {
	now = c.reg.Now()
	if n > 1 || c.lost.Load() || e.Lost() {
		return v, now, false
	}
	v, shut = e.Shut(now)
	return v, now, shut && !e.Dead() && !c.special.Load()
}

// denial is the decision where a limit's bucket denied.
func (c *Client) denial(it *match.Item, e *agent.Entry, v bucket.Verdict, lost bool) Decision {
	d := Decision{RetryAfter: micros(v.RetryAfter), by: sourceOf(it, e)}
	switch {
	case v.Never:
		d.Reason = ReasonTooLarge
	case lost && !e.State(c.reg.Now()).Leased:
		d.Reason = ReasonOutage
	}
	return d
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
