package client

import (
	"context"
	"sync"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/handover"
	"github.com/f4ee788f/quota/internal/core/match"
)

// AllowTogether decides several requests as one: all of them are allowed, or nothing is taken of any limit. Two
// requests that meet the same bucket need the sum of their units of it.
//
// The decisions are in the order of the requests. Each says whether its request fits, together with those before it
// that do. All are admitted where every decision is Allowed, and none where any is not. A denial counts as demand on
// the limit that denied. After a denial nothing is waited for. The other requests are decided as Peek would, and a
// bucket whose state is not known denies nobody.
//
// A request of 0 units asks whether one unit would be allowed, before the others take theirs. One to which no limit
// applies is allowed, whether or not it names a tenant. Limits of slots are left out, for nobody tells when the
// requests end.
func (c *Client) AllowTogether(ctx context.Context, requests []Request) []Decision {
	before := handover.Of(ctx)
	if before != nil {
		before = sync.OnceFunc(before)
	}
	all := make([]*request, len(requests))
	for i := range requests {
		r := c.request(requests[i].Units, requests[i].Costs, attributesOf(requests[i].Attributes))
		r.together, r.endless, r.before = true, true, before
		all[i] = r
		defer r.end()
	}
	allowed := decideTogether(ctx, all)
	decisions := make([]Decision, len(requests))
	for i, r := range all {
		decisions[i] = r.decision
		r.decision.Allowed = allowed
		r.endTogether(allowed)
	}
	c.try(all...)
	return decisions
}

// decideTogether decides requests and reports whether all are allowed: then they have all units in hand.
func decideTogether(ctx context.Context, all []*request) (allowed bool) {
	allowed = true
	for _, r := range all { // before anything is taken
		if r.looks() {
			r.start(ctx)
			allowed = allowed && r.decision.Allowed
		}
	}
	for _, r := range all {
		switch {
		case r.looks():
		case allowed:
			r.start(ctx)
			allowed = r.waiting > 0 || r.decision.Allowed
		default:
			r.look()
		}
	}
	for _, r := range all { // all answers were asked for at once
		switch {
		case r.waiting == 0:
		case allowed:
			r.finish(ctx)
			allowed = r.decision.Allowed
		default:
			r.giveBack(false)
			r.look()
		}
	}
	return allowed
}

// look decides a request as Peek would, beside those before it. It takes its units, as far as they are there, until all
// requests have been looked at, so that those after it find less.
func (r *request) look() {
	if !inRange(r.n, r.costs) {
		r.decision = Decision{Reason: ReasonInvalid}
		return
	}
	r.decision = Decision{Allowed: true, Reason: ReasonUnknown}
	if r.set = r.c.reg.Find(r.tenant()); r.set == nil {
		return
	}
	if d, refused := r.c.refusal(r.set); refused {
		r.decision, r.set = d, nil
		return
	}
	if r.weigh(&r.set.List) != nil {
		r.decision, r.set = Decision{Reason: ReasonInvalid}, nil
		return
	}
	r.decision = r.peek(func(it *match.Item, e *agent.Entry, n int64) {
		h := r.claim(it, e, n, true)
		until := e.Until()
		h.taken = e.Try(n) && e.InTime(n, until, r.c.clock)
		r.claims = append(r.claims, h)
	})
	if !r.decision.Allowed {
		r.giveBack(false)
	}
}

// endTogether keeps the request's units if all requests are allowed, and else gives them back.
func (r *request) endTogether(allowed bool) {
	if allowed {
		r.release()
		return
	}
	for _, h := range r.claims {
		h.entry.Fits()
	}
	r.giveBack(false)
	if r.unaccounted {
		r.c.unaccounted.Add(-r.n)
	}
}
