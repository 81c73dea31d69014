package client

import (
	"errors"
	"time"

	"github.com/f4ee788f/quota/internal/agent"
	"github.com/f4ee788f/quota/internal/limit"
)

// exceed asks the bucket of what a soft limit admits above itself in place of bucket i,
// which denied. What the first refused is not denied there: the second decides, and
// counts. stop says that the request was decided.
func (r *request) exceed(i int, v agent.Verdict) (d Decision, again, stop bool) {
	c, h := r.c, r.holds[i]
	h.entry.Excuse(r.n)
	if h.item.Inherited {
		h.entry.Inherit(-r.n)
	}
	if r.said[i] {
		h.entry.Release(r.n)
		r.said[i] = false
	}
	beyond, err := c.reg.Beyond(h.entry, c.now())
	if err != nil {
		// The bucket itself is no longer part of the request: it counts the denial after all.
		h.entry.Excuse(-r.n)
		r.drop(i)
		r.giveBack(false)
		if errors.Is(err, agent.ErrGone) {
			return d, true, true
		}
		c.pressed.Store(true)
		c.crowded.Add(1)
		return Decision{Reason: ReasonCrowded, RetryAfter: time.Second, held: held{c, h}}, false, true
	}
	r.holds[i].entry, r.above = beyond, true
	r.say(i)
	if h.item.Inherited {
		beyond.Inherit(r.n)
	}
	if beyond.Take(r.n) {
		r.taken[i] = true
		return d, false, false
	}
	switch second, lost := c.refill(beyond, r.n, false); second.Outcome {
	case agent.Admitted:
		r.taken[i] = true
		return d, false, false
	case agent.Rematch:
		r.giveBack(false)
		return d, true, true
	case agent.Wait:
		d, stop = r.enqueue(i, false)
		return d, false, stop
	default:
		r.giveBack(false)
		d = c.denial(h, second, lost)
		if v.RetryAfter > 0 && time.Duration(v.RetryAfter)*time.Microsecond < d.RetryAfter {
			d.RetryAfter = time.Duration(v.RetryAfter) * time.Microsecond // the limit itself has something sooner
		}
		return d, false, true
	}
}

// drop takes bucket i, of which nothing is taken or announced, out of the request.
func (r *request) drop(i int) {
	last := len(r.holds) - 1
	r.holds[i], r.taken[i], r.said[i], r.waiters[i] = r.holds[last], r.taken[last], r.said[last], r.waiters[last]
	r.holds, r.taken, r.said, r.waiters = r.holds[:last], r.taken[:last], r.said[:last], r.waiters[:last]
}

// closes reports whether the limit is to deny out of contact, and has no live lease.
func (c *Client) closes(it *agent.Item, e *agent.Entry) bool {
	return it.Rule.Limit.OnOutage == limit.OutageClosed && !e.State(c.now()).Live
}
