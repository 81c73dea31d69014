package client

import (
	"context"
	"errors"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// exceed asks the overage bucket of a soft limit in place of the bucket of claim i, which denied. The overage decides,
// so that the first bucket's denial is not counted. It reports false where there is no overage any more: the policy
// changed, and the tenant's limits follow soon.
func (r *request) exceed(ctx context.Context, i int) (s step, is bool) {
	h := &r.claims[i]
	beyond, err := r.c.reg.Beyond(h.entry, r.c.reg.Now())
	switch {
	case errors.Is(err, agent.ErrGone):
		if !r.set.Gone() && !r.c.closed.Load() {
			return onward, false // to ask again would ask the same limits
		}
		return r.restart(), true
	case err != nil:
		r.crowded()
		return r.deny(inASecond(ReasonOverloaded, sourceOf(h.item, h.entry))), true
	}
	h.under = h.entry
	r.move(h, beyond)
	return r.askBucket(ctx, i), true
}

// comeDown has a request that waits its turn wait at the soft limit itself, whose overage denied.
func (r *request) comeDown(ctx context.Context, i int) step {
	r.move(&r.claims[i], r.claims[i].under)
	return r.await(ctx, i, true)
}

// move has a claim ask another bucket of its limit. The one before denied it, and is not to count that.
func (r *request) move(h *claim, to *agent.Entry) {
	h.entry.Excuse(h.n)
	r.leave(h)
	under := h.under
	*h = r.claim(h.item, to, h.n, true)
	h.under = under
}

// sooner has a denial by a limit's overage say when the limit itself has the units, if that is sooner.
func (c *Client) sooner(d Decision, under *agent.Entry, n int64, lost bool) Decision {
	own := micros(under.RetryAfter(c.reg.Now(), n, lost))
	if own > 0 && (d.RetryAfter == 0 || own < d.RetryAfter) {
		d.RetryAfter = own
		if d.Reason == ReasonTooLarge {
			d.Reason = ReasonLimit // too large for the overage only
		}
	}
	return d
}

// closes reports whether the limit is to deny out of contact, and its bucket has no live lease.
func (c *Client) closes(it *match.Item, e *agent.Entry) bool {
	return it.Rule.Limit.OnOutage == limit.OutageClosed && !e.State(c.reg.Now()).Live
}
