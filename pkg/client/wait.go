package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/session"
)

// Wait asks for one unit and waits for it; see WaitN.
func (c *Client) Wait(ctx context.Context, attributes ...Attribute) Decision {
	return c.WaitN(ctx, 1, attributes...)
}

// WaitN is AllowN for a request that would rather wait than be denied: where a limit has
// not the units, it waits its turn, first come first served, until they are there
// or ctx ends (ReasonDeadline). It is denied at once where the limit never has as many, where as many wait
// in this client as the limit's queue lets, 1,024 if it names none (ReasonQueueFull), and
// after the limit's wait if it has one (ReasonQueueTimeout).
//
// Where Allow would be admitted it does not wait: of a soft limit it has what that admits above itself, and waits its turn
// at the limit only when that is used up too.
//
// It asks one limit after the other, the strictest first, and keeps what it has while it
// waits for the next: tokens of looser limits are not taken long before they are of use. Slots come
// last, in one order for all requests, so that no two wait for each other.
func (c *Client) WaitN(ctx context.Context, n int64, attributes ...Attribute) Decision {
	r := c.request(n, attributesOf(attributes))
	r.patient = true
	return c.begun(ctx, r)
}

// Wait takes one unit, and waits for it; see Client.WaitN.
func (l *Limiter) Wait(ctx context.Context) Decision { return l.WaitN(ctx, 1) }

// WaitN takes n units, and waits for them; see Client.WaitN.
func (l *Limiter) WaitN(ctx context.Context, n int64) Decision {
	if e := l.only.Load(); e != nil && n >= 1 && n <= limit.MaxUnits && e.Try(n) {
		return Decision{Allowed: true, by: e}
	}
	return l.c.WaitN(ctx, n, l.attrs...)
}

// waitTurn waits until the turn of the last bucket's request has come, for which alone it waits.
func (r *request) waitTurn(ctx context.Context) (d Decision, again, stop bool) {
	c, last := r.c, len(r.legs)-1
	h := r.legs[last]
	var late <-chan time.Time
	if most := h.item.Rule.Limit.Wait; most > 0 {
		t := time.NewTimer(most)
		defer t.Stop()
		late = t.C
	}
	if r.timed {
		// The waiting for answers goes on after this one.
		defer func() {
			r.timer.Reset(c.cfg.maxWait)
			r.over = false
		}()
	}
	reason := ReasonQueueTimeout
	select {
	case w := <-r.answers:
		return r.take(ctx, w)
	case <-late:
	case <-ctx.Done():
		reason = ReasonDeadline
		c.deadlined.Add(1)
	}
	r.giveBack(true)
	return Decision{Reason: reason, RetryAfter: time.Second, by: h.speaks()}, false, true
}

// ending is the slots of a request, to be given back at its end.
type ending struct {
	c       *Client
	done    atomic.Bool
	n       int64
	entries []*agent.Entry
}

// endingOf returns the end of a request that was admitted; nil where it has no slots.
func (c *Client) endingOf(legs []leg, n int64) *ending {
	var e *ending
	for _, h := range legs {
		if h.item.Slots {
			if e == nil {
				e = &ending{c: c, n: n}
			}
			e.entries = append(e.entries, h.entry)
		}
	}
	return e
}

func (e *ending) end() {
	if !e.done.Swap(true) {
		for _, entry := range e.entries {
			e.c.finish(entry, e.n)
		}
	}
}

// finish gives back n slots of a request that has ended.
func (c *Client) finish(e *agent.Entry, n int64) {
	session.Serve(e.Finish(n))
	c.spare(e)
}

// spare has the loop look at a bucket of slots some of which came back, if they are too many to keep.
func (c *Client) spare(e *agent.Entry) {
	if e.Surplus() {
		c.attend(e)
	}
}
