package client

import (
	"context"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// Peek tells whether a request of n units would be allowed, as far as this client knows. It takes nothing, and waits
// only for a tenant that is not known yet, no longer than ctx and WithMaxWait. With n = 0 it asks for one unit.
func (c *Client) Peek(ctx context.Context, n int64, attributes ...Attribute) Decision {
	return c.PeekRequest(ctx, Request{Units: n, Attributes: attributes})
}

// PeekRequest is Peek for a request that may have several costs: see Decide.
func (c *Client) PeekRequest(ctx context.Context, q Request) Decision {
	r := c.request(q.Units, q.Costs, attributesOf(q.Attributes))
	r.peeks = true
	return r.decide(ctx)
}

// peek returns the decision to be expected from the buckets' present state. It calls met, unless nil, for each bucket
// that is not expected to deny, with the units that the request needs of it.
func (r *request) peek(met func(it *match.Item, e *agent.Entry, n int64)) Decision {
	d := Decision{Allowed: true, Reason: ReasonUnlimited}
	mode := r.c.reg.Mode()
	var strictest *match.Item
	for i, it := range r.in(&r.set.List).each {
		e := r.c.reg.Entry(&r.set.List, i, r.attrs)
		if strictest == nil || it.Rank < strictest.Rank {
			strictest = it
			d.Reason, d.by = ReasonLimit, sourceIn(r.set, it, e)
		}
		if mode != limit.ModeNormal {
			continue
		}
		n := r.units(it)
		if r.looks() {
			n = 1
		}
		if n == 0 {
			continue
		}
		if denied, is := r.foresee(it, e, n); is {
			return denied
		}
		if e != nil && met != nil {
			met(it, e, n)
		}
	}
	switch {
	case mode == limit.ModeAllowAll || strictest != nil && mode != limit.ModeNormal:
		d.Reason = ReasonSwitch
	case strictest == nil && !r.together && r.tenant() == "":
		return Decision{Reason: ReasonNoTenant}
	}
	return d
}

// foresee is the denial of n units that is to be expected of a limit, if any. Its bucket is nil where there is none yet.
func (r *request) foresee(it *match.Item, e *agent.Entry, n int64) (d Decision, denied bool) {
	c := r.c
	if e == nil {
		if it.Vet && it.Rule.Listed(r.attrs) == limit.DeniedBy {
			return Decision{Reason: ReasonListed, by: sourceIn(r.set, it, nil)}, true
		}
		if l := &it.Rule.Limit; c.lost.Load() && !l.CountsOnly() && (l.OnOutage == limit.OutageClosed || !opens(it)) {
			return inASecond(ReasonOutage, sourceIn(r.set, it, nil)), true
		}
		return d, false
	}
	if d, denied = c.vet(it, e, n, r.attrs); denied {
		return d, true
	}
	lost := c.lost.Load() || e.Lost()
	v := e.Foresee(c.reg.Now(), n, lost)
	if v.Outcome != bucket.Denied {
		return d, false
	}
	if it.Soft && !(lost && c.closes(it, e)) {
		overage := c.reg.Above(e)
		if overage == nil && (!lost || opens(it)) {
			return d, false
		}
		if overage != nil && overage.Foresee(c.reg.Now(), n, lost).Outcome != bucket.Denied {
			return d, false
		}
	}
	return c.denial(it, e, v, lost), true
}

// opens reports whether a limit without a bucket admits out of contact: by on_outage, or by an overage without a bound.
func opens(it *match.Item) bool {
	overage := it.Rule.Overage()
	return it.Rule.Limit.OnOutage == limit.OutageOpen || overage != nil && overage.Limit.CountsOnly()
}
