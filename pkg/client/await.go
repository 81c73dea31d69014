package client

import (
	"context"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/session"
)

// await lets the request wait for the last bucket, which said so: for its answer,
// together with others', or for its turn. stop says that it was decided instead, or, with
// again, that it has to match again.
func (r *request) await(ctx context.Context) (d Decision, again, stop bool) {
	it := r.legs[len(r.legs)-1].item
	patient := r.waitsItsTurn(it) && !it.Soft
	if d, stop := r.enqueue(len(r.legs)-1, patient); stop || !patient {
		return d, false, stop
	}
	return r.waitTurn(ctx)
}

// waitsItsTurn reports whether the request waits its turn at a limit, not only for an answer.
func (r *request) waitsItsTurn(it *agent.Item) bool { return r.patient || it.Queues }

// enqueue lets the request wait for bucket i. stop says that it was decided instead.
func (r *request) enqueue(i int, patient bool) (d Decision, stop bool) {
	c := r.c
	h := r.legs[i]
	r.say(i)
	w := r.waiter()
	w.Units, w.Reserves = r.n, r.reserves != nil
	reason := ReasonOverloaded
	if patient && r.count() || !patient && r.begin() {
		if c.enqueue(h.entry, &w.Waiter, patient) {
			r.waiters[i] = w
			r.waiting++
			return d, false
		}
		if patient {
			reason = ReasonQueueFull
		}
	}
	r.spare = append(r.spare, w)
	r.giveBack(false)
	return Decision{Reason: reason, RetryAfter: time.Second, by: h.speaks()}, true
}

// enqueue adds a waiter to a bucket and has the loop ask for it. A bucket that is no
// more tells it at once.
func (c *Client) enqueue(e *agent.Entry, w *bucket.Waiter, patient bool) bool {
	if !e.Enter() {
		w.Dismiss()
		w.Done(w.Verdict())
		return true
	}
	defer e.Leave()
	if c.closed.Load() {
		w.Dismiss()
		w.Done(w.Verdict())
		return true
	}
	if !patient {
		if !e.Enqueue(w) {
			return false
		}
	} else if served, ok := e.Join(w); ok {
		session.Serve(served)
	} else {
		return false
	}
	c.attend(e)
	return true
}

// wait waits until every bucket has answered, or the time is over.
func (r *request) wait(ctx context.Context) (d Decision, again, stop bool) {
	c := r.c
	for r.waiting > 0 {
		if !r.over {
			select {
			case w := <-r.answers:
				if d, again, stop = r.take(ctx, w); stop {
					return d, again, stop
				}
				continue
			case <-ctx.Done():
			case <-r.timer.C:
				r.over = true
			}
		}
		var h leg
		for i, w := range r.waiters {
			if w != nil {
				h = r.legs[i]
			}
		}
		r.giveBack(true)
		c.deadlined.Add(1)
		return Decision{Reason: ReasonDeadline, RetryAfter: time.Second, by: h.speaks()}, false, true
	}
	return d, false, false
}

// take takes an answer; stop says that it ends the attempt.
func (r *request) take(ctx context.Context, w *waiter) (d Decision, again, stop bool) {
	switch i, v := r.answered(w); v.Outcome {
	case bucket.Admitted:
		return d, false, false
	case bucket.Rematch:
		r.giveBack(false)
		return d, true, true
	default:
		h := r.legs[i]
		lost := r.c.lost.Load() || h.entry.Lost()
		switch {
		case !h.item.Soft || lost && r.c.closes(h.item, h.entry):
		case h.entry.Overage() && r.patient && !lost:
			return r.comeDown(ctx)
		case !h.entry.Overage() && h.entry != r.under:
			return r.exceed(ctx, i)
		}
		under := r.under
		r.giveBack(false)
		d = r.c.denial(h, v, lost)
		if under != nil && h.entry.Overage() {
			d = r.c.sooner(d, under, r.n, lost)
		}
		return d, false, true
	}
}

// answered takes the answer of a bucket, and returns which it is.
func (r *request) answered(w *waiter) (i int, v bucket.Verdict) {
	i, v = slices.Index(r.waiters, w), w.Verdict()
	r.rest(i)
	r.waiting--
	if r.taken[i] = v.Outcome == bucket.Admitted; r.taken[i] {
		r.windows[i] = w.Window()
	}
	return i, v
}

// rest keeps for later what waits for bucket i no more.
func (r *request) rest(i int) {
	r.spare = append(r.spare, r.waiters[i])
	r.waiters[i] = nil
}

// giveBack ends the attempt with nothing in hand. Unless a limit denied it, and has
// counted that, the first bucket that it still waits for does.
func (r *request) giveBack(denied bool) {
	owed := 0
	for i, w := range r.waiters {
		if w == nil {
			continue
		}
		served, was := r.legs[i].entry.Abandon(&w.Waiter, denied)
		session.Serve(served)
		if was {
			r.rest(i)
			denied = false
		} else {
			owed++ // its answer is there, or on its way
		}
	}
	for range owed {
		r.answered(<-r.answers)
	}
	for i, h := range r.legs {
		switch {
		case !r.taken[i]:
		case r.windows[i] != 0:
			session.Serve(h.entry.PutBackOf(r.n, r.windows[i]))
		default:
			session.Serve(h.entry.Cancel(r.n))
			if h.item.Slots {
				r.c.spare(h.entry)
			}
		}
		if h.item.Inherited {
			h.entry.Inherit(-r.n)
		}
		if r.said[i] {
			h.entry.Release(r.n)
		}
	}
	r.legs, r.taken, r.said, r.windows, r.waiters, r.waiting = r.legs[:0], r.taken[:0], r.said[:0], r.windows[:0], r.waiters[:0], 0
	r.under = nil
}

// prime gets a bucket leased for which no request waits.
func (c *Client) prime(e *agent.Entry, n int64) {
	if e.Urgent() {
		return
	}
	w := &bucket.Waiter{Units: n}
	e.Hold(n)
	w.Done = func(bucket.Verdict) {
		if w.Verdict().Outcome == bucket.Admitted {
			e.PutBack(n)
		}
		e.Release(n)
	}
	if !c.enqueue(e, w, false) {
		e.Release(n)
	}
}
