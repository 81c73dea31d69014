package client

import (
	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// vet denies n units before the bucket is asked. It does so by the limit's deny list, or because the units left are
// reserved for requests of a higher priority.
func (c *Client) vet(it *match.Item, e *agent.Entry, n int64, a []limit.Attribute) (d Decision, denied bool) {
	if !it.Vet {
		return d, false
	}
	if it.Rule.Listed(a) == limit.DeniedBy {
		return Decision{Reason: ReasonListed, by: sourceOf(it, e)}, true // waiting does not help
	}
	ppm := it.Rule.Reserved(a)
	if ppm == 0 {
		return d, false
	}
	state := e.State(c.reg.Now())
	if reserved := state.Capacity * ppm / limit.Micro; reserved == 0 || state.Remaining >= reserved+n {
		return d, false
	}
	return Decision{Reason: ReasonPriority, RetryAfter: micros(max(state.ResetIn, 1)), by: sourceOf(it, e)}, true
}

// vetAgain denies a request that has all its units, if a bucket that it waited for has only units left that are
// reserved for others.
func (r *request) vetAgain() step {
	for _, h := range r.claims {
		if h.entry.Overage() || h.n == 0 {
			continue
		}
		if d, denied := r.c.vet(h.item, h.entry, 0, r.attrs); denied {
			s := r.deny(d)
			h.entry.Refuse(h.n)
			return s
		}
	}
	return onward
}
