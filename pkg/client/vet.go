package client

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// vetted returns why the limit denies n units before its bucket is asked; ReasonLimit
// where it does not.
func (c *Client) vetted(it *agent.Item, e *agent.Entry, n int64, a []limit.Attribute) Reason {
	if it.Rule.Listed(a) == limit.DeniedBy {
		return ReasonListed
	}
	if floor := floorOf(it, e, a); floor > 0 && e.Left(c.now()) < floor+n {
		return ReasonPriority
	}
	return ReasonLimit
}

// floorOf is what of the bucket the request has to leave for others; 0 for nothing.
func floorOf(it *agent.Item, e *agent.Entry, a []limit.Attribute) int64 {
	ppm := it.Rule.Reserved(a)
	if ppm == 0 {
		return 0
	}
	return e.Capacity() * ppm / limit.Micro
}

// later is how long to stay away from what was denied before its bucket was asked.
func (c *Client) later(e *agent.Entry, reason Reason) time.Duration {
	if reason == ReasonListed {
		return 0 // waiting does not help
	}
	return time.Duration(max(e.State(c.now()).ResetIn, 1)) * time.Microsecond
}

// outranked denies a request that has all its units where a bucket that it had to
// wait for turned out to have no more than is reserved for others.
func (r *request) outranked(mode limit.Mode) (d Decision, denied bool) {
	if mode != limit.ModeNormal {
		return d, false
	}
	c := r.c
	for _, h := range r.legs {
		if !h.item.Vet || h.entry.Overage() {
			continue
		}
		if floor := floorOf(h.item, h.entry, r.attrs); floor > 0 && h.entry.Left(c.now()) < floor {
			r.giveBack(false)
			h.entry.Refuse(r.n)
			return Decision{Reason: ReasonPriority, RetryAfter: c.later(h.entry, ReasonPriority), by: h.speaks()}, true
		}
	}
	return d, false
}
