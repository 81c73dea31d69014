package client

import (
	"context"
	"errors"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// exceed asks the bucket of what a soft limit admits above itself in place of bucket i,
// which denied. What the first refused is not denied there: the second decides, and
// counts. stop says that the request was decided.
func (r *request) exceed(ctx context.Context, i int) (d Decision, again, stop bool) {
	c, h := r.c, r.legs[i]
	h.entry.Excuse(r.n)
	r.leave(i)
	beyond, err := c.reg.Beyond(h.entry, c.now())
	if err != nil {
		// The bucket itself is no longer part of the request: it counts the denial after all.
		h.entry.Excuse(-r.n)
		r.drop(i)
		r.giveBack(false)
		if errors.Is(err, agent.ErrGone) {
			return d, true, true
		}
		c.session.Press()
		c.overloaded.Add(1)
		return Decision{Reason: ReasonOverloaded, RetryAfter: time.Second, by: h.speaks()}, false, true
	}
	r.under = h.entry
	r.become(i, beyond)
	if beyond.Take(r.n) {
		r.taken[i] = true
		return d, false, false
	}
	switch second, lost := c.refill(beyond, r.n, false); second.Outcome {
	case bucket.Admitted:
		r.taken[i] = true
		return d, false, false
	case bucket.Rematch:
		r.giveBack(false)
		return d, true, true
	case bucket.Wait:
		d, stop = r.enqueue(i, false)
		return d, false, stop
	default:
		if r.patient && !lost {
			return r.comeDown(ctx)
		}
		r.giveBack(false)
		return c.sooner(c.denial(h, second, lost), h.entry, r.n, lost), false, true
	}
}

// sooner has a denial by what a limit admits above itself say when the limit itself has the units, if that is sooner.
func (c *Client) sooner(d Decision, under *agent.Entry, n int64, lost bool) Decision {
	if own := time.Duration(under.RetryAfter(c.now(), n, lost)) * time.Microsecond; own > 0 && (d.RetryAfter == 0 || own < d.RetryAfter) {
		d.RetryAfter = own
		if d.Reason == ReasonTooLarge {
			d.Reason = ReasonLimit // above itself only: alone it has as many
		}
	}
	return d
}

// comeDown has a request that waits its turn wait at the last limit itself, of which nothing is to be had above it.
func (r *request) comeDown(ctx context.Context) (d Decision, again, stop bool) {
	last := len(r.legs) - 1
	r.legs[last].entry.Excuse(r.n)
	r.leave(last)
	r.become(last, r.under)
	if d, stop := r.enqueue(last, true); stop {
		return d, false, stop
	}
	return r.waitTurn(ctx)
}

// leave withdraws what bucket i was told of the request.
func (r *request) leave(i int) {
	h := r.legs[i]
	if h.item.Inherited {
		h.entry.Inherit(-r.n)
	}
	if r.said[i] {
		h.entry.Release(r.n)
		r.said[i] = false
	}
}

// become puts another bucket of the limit in the place of bucket i, which the request left.
func (r *request) become(i int, e *agent.Entry) {
	r.legs[i].entry = e
	r.windows[i] = windowOf(r.legs[i])
	r.say(i)
	if r.legs[i].item.Inherited {
		e.Inherit(r.n)
	}
}

// drop takes bucket i, of which nothing is taken or announced, out of the request.
func (r *request) drop(i int) {
	last := len(r.legs) - 1
	r.legs[i], r.taken[i], r.said[i], r.windows[i], r.waiters[i] = r.legs[last], r.taken[last], r.said[last], r.windows[last], r.waiters[last]
	r.legs, r.taken, r.said, r.windows, r.waiters = r.legs[:last], r.taken[:last], r.said[:last], r.windows[:last], r.waiters[:last]
}

// closes reports whether the limit is to deny out of contact, and has no live lease.
func (c *Client) closes(it *agent.Item, e *agent.Entry) bool {
	return it.Rule.Limit.OnOutage == limit.OutageClosed && !e.State(c.now()).Live
}
