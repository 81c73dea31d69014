package client

import (
	"context"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// Wait asks for one unit and waits for it; see WaitN.
func (c *Client) Wait(ctx context.Context, attributes ...Attribute) Decision {
	return c.WaitN(ctx, 1, attributes...)
}

// WaitN is AllowN for a request that would rather wait than be denied. Where a limit has too few units, it waits its
// turn, first come first served, until they are there or ctx ends (ReasonDeadline).
//
// It is denied at once where the limit never has as many units (ReasonTooLarge), or too many requests wait in this
// client (ReasonQueueFull). The limit's queue says how many may; by default 1,024. A limit with a wait denies after
// that time (ReasonQueueTimeout).
//
// It does not wait where AllowN would admit. At a soft limit it takes overage first, and waits only when that is used
// up as well.
//
// It asks one limit after the other, the strictest first, and keeps its units while it waits for the next. So tokens of
// looser limits are not taken long before they are used. Slots come last, in one order for all requests: no two wait
// for each other.
func (c *Client) WaitN(ctx context.Context, n int64, attributes ...Attribute) Decision {
	return c.wait(ctx, n, nil, attributesOf(attributes))
}

// WaitRequest is WaitN for a request that may have several costs: see Decide.
func (c *Client) WaitRequest(ctx context.Context, q Request) Decision {
	return c.wait(ctx, q.Units, q.Costs, attributesOf(q.Attributes))
}

func (c *Client) wait(ctx context.Context, n int64, costs []Cost, attributes []limit.Attribute) Decision {
	r := c.request(n, costs, attributes)
	r.patient = true
	return r.decide(ctx)
}

// waitsItsTurn reports whether the request waits its turn at a limit, not only for an answer.
func (r *request) waitsItsTurn(it *match.Item) bool { return r.patient || it.Queues }

// await has the request wait in the bucket of claim i. If patient, it waits until its turn has come. Else it waits for
// an answer, together with those of other buckets.
func (r *request) await(ctx context.Context, i int, patient bool) step {
	c, h := r.c, &r.claims[i]
	r.hold(h)
	w := r.waiter()
	w.Units, w.Reserves, w.Since = h.n, r.reserves != nil, c.clock()
	reason := ReasonOverloaded
	if r.mayWait() {
		if c.enqueue(h.entry, w, patient) {
			h.waiter = w
			r.waiting++
			if patient {
				return r.waitForTurn(ctx, h.item.Rule.Limit.Wait)
			}
			return onward
		}
		if patient {
			reason = ReasonQueueFull
		} else if h.item.Soft && !h.entry.Overage() {
			r.spare = append(r.spare, w)
			if s, is := r.exceed(ctx, i); is {
				return s
			}
			return r.deny(inASecond(reason, sourceOf(h.item, h.entry)))
		}
	}
	r.spare = append(r.spare, w)
	return r.deny(inASecond(reason, sourceOf(h.item, h.entry)))
}

// enter is Entry.Enter. It reports false also where the client is closed.
func (c *Client) enter(e *agent.Entry) bool {
	if !e.Enter() {
		return false
	}
	if c.closed.Load() {
		e.Leave()
		return false
	}
	return true
}

// enqueue adds a waiter to a bucket and has the loop ask for it; false where too many wait there. Where the bucket is
// no more the waiter is told at once.
func (c *Client) enqueue(e *agent.Entry, w *bucket.Waiter, patient bool) bool {
	if !c.enter(e) {
		w.Dismiss()
		w.Done(w.Verdict())
		return true
	}
	defer e.Leave()
	var served []*bucket.Waiter
	var room bool
	if patient {
		served, room = e.Join(w)
	} else {
		room = e.Enqueue(w)
	}
	if room {
		bucket.Serve(served)
		c.session.Attend(e)
	}
	return room
}

// waitForAnswers waits until every bucket has answered, no longer than WithMaxWait.
func (r *request) waitForAnswers(ctx context.Context) step {
	if r.waiting == 0 {
		return onward
	}
	var over <-chan time.Time
	if r.counted && !r.background {
		over = r.timer.C
	}
	return r.wait(ctx, over, ReasonDeadline)
}

// waitForTurn waits until the request's turn has come, no longer than the limit's own wait; 0 for no bound. It waits in
// one bucket only.
func (r *request) waitForTurn(ctx context.Context, most time.Duration) step {
	var late <-chan time.Time
	if most > 0 {
		t := time.NewTimer(most)
		defer t.Stop()
		late = t.C
	}
	s := r.wait(ctx, late, ReasonQueueTimeout)
	r.timer.Reset(r.c.cfg.maxWait) // the time in the queue does not count
	return s
}

// wait waits until nothing is waited for, or the time is over: then the reason says why the request is denied.
func (r *request) wait(ctx context.Context, over <-chan time.Time, reason Reason) step {
	for r.waiting > 0 {
		select {
		case w := <-r.answers:
			if s := r.answered(ctx, w); s != onward {
				return s
			}
			continue
		case <-ctx.Done():
			reason = ReasonDeadline
		case <-r.c.session.Done(): // it began to wait as the client closed: nobody serves it
			reason = ReasonClosed
		case <-over:
		}
		if reason == ReasonDeadline {
			r.c.deadlined.Add(1)
		}
		var by any
		for _, h := range r.claims {
			if h.waiter != nil {
				by = sourceOf(h.item, h.entry)
			}
		}
		r.giveBack(true)
		r.decision = inASecond(reason, by)
		return decided
	}
	return onward
}

// answered goes on with a bucket's answer.
func (r *request) answered(ctx context.Context, w *bucket.Waiter) step {
	i := r.note(w)
	switch v := w.Verdict(); v.Outcome {
	case bucket.Admitted:
		if h := &r.claims[i]; !h.entry.InTime(h.n, v.Until, r.c.clock) {
			h.taken = false
			return r.restart() // the loop served it, and stood still before it heard
		}
		return onward
	case bucket.Rematch:
		return r.restart()
	default:
		return r.refused(ctx, i, v, r.c.lost.Load() || r.claims[i].entry.Lost())
	}
}

// note takes the answer of a bucket, and returns the claim's index.
func (r *request) note(w *bucket.Waiter) int {
	i := slices.IndexFunc(r.claims, func(h claim) bool { return h.waiter == w })
	h := &r.claims[i]
	h.waiter = nil
	r.waiting--
	r.spare = append(r.spare, w)
	if h.taken = w.Verdict().Outcome == bucket.Admitted; h.taken {
		h.window = w.Window()
	}
	return i
}

// giveBack ends all claims, with nothing in hand. With denied the first bucket that still waits counts the denial: no
// limit has.
func (r *request) giveBack(denied bool) {
	late := 0 // answers that are there, or on their way
	for i := range r.claims {
		h := &r.claims[i]
		if h.waiter == nil {
			continue
		}
		served, waited := h.entry.Abandon(h.waiter, denied)
		bucket.Serve(served)
		if !waited {
			late++
			continue
		}
		denied = false
		r.spare = append(r.spare, h.waiter)
		h.waiter = nil
	}
	for range late {
		r.note(<-r.answers)
	}
	for i := range r.claims {
		h := &r.claims[i]
		switch {
		case !h.taken:
		case h.window != 0:
			bucket.Serve(h.entry.PutBackOf(h.n, h.window))
		default:
			bucket.Serve(h.entry.Cancel(h.n))
			if h.item.Slots {
				r.c.spare(h.entry)
			}
		}
		r.leave(h)
	}
	r.claims, r.waiting = r.claims[:0], 0
}

// leave takes back what a bucket was told of the request.
func (r *request) leave(h *claim) {
	if h.item.Inherited {
		h.entry.Inherit(-h.n)
	}
	if h.held {
		h.entry.Release(h.n)
		h.held = false
	}
	h.unpin()
}

// unpin ends request.keep.
func (h *claim) unpin() {
	if h.pinned {
		h.entry.Unpin()
		h.pinned = false
	}
}

// prime has a bucket get a lease although no request waits for it.
func (c *Client) prime(e *agent.Entry, n int64) {
	if e.Urgent() {
		return
	}
	w := &bucket.Waiter{Units: n}
	e.Hold(n)
	w.Done = func(v bucket.Verdict) {
		if v.Outcome == bucket.Admitted {
			e.PutBack(n)
		}
		e.Release(n)
	}
	if !c.enqueue(e, w, false) {
		e.Release(n)
	}
}
