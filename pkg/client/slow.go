package client

import (
	"context"
	"errors"
	"math/bits"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/handover"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// begun decides a request from the beginning, and ends it.
func (c *Client) begun(ctx context.Context, r *request) Decision {
	defer r.end()
	switch {
	case c.closed.Load():
		return Decision{Reason: ReasonClosed}
	case r.n < 0 || r.n > limit.MaxUnits:
		c.refused.Add(1)
		return Decision{Reason: ReasonInvalid}
	}
	r.before = handover.Of(ctx)
	return c.decide(ctx, r)
}

// decide matches and runs a request until it comes to an end, within its time.
func (c *Client) decide(ctx context.Context, r *request) Decision {
	for {
		if c.closed.Load() {
			return Decision{Reason: ReasonClosed}
		}
		set, d := c.resolve(ctx, r)
		if set == nil {
			return d
		}
		if d, ok := c.refusal(set); ok {
			return d
		}
		if r.peeks || r.n == 0 {
			return c.peek(set, max(r.n, 1), r.attrs, r.endless, nil)
		}
		if r.remembers {
			r.remembers = false
			r.remember(set)
		}
		if d, again := r.run(ctx, set); !again {
			return d
		}
	}
}

// resolve returns what holds the request, waiting for the tenant to be known.
func (c *Client) resolve(ctx context.Context, r *request) (*agent.Set, Decision) {
	set, why := c.find(ctx, r)
	switch {
	case set != nil:
		return set, Decision{}
	case why == ReasonUnknown:
		return nil, c.unknownDecision(r.n, agent.Lookup(r.attrs, AttrTenant))
	case why == ReasonInvalid:
		c.refused.Add(1)
	}
	return nil, Decision{Reason: why}
}

// find returns what holds the request, waiting for the tenant to be known, or why there is nothing: ReasonInvalid, ReasonOverloaded or
// ReasonUnknown.
func (c *Client) find(ctx context.Context, r *request) (*agent.Set, Reason) {
	id := agent.Lookup(r.attrs, AttrTenant)
	if set := c.reg.Find(id); set != nil {
		return set, ReasonLimit
	}
	if id != "" && !limit.ValidTenant(id) {
		return nil, ReasonInvalid
	}
	if c.reg.Version() == 0 || id == "" || c.lost.Load() {
		return nil, ReasonUnknown
	}
	r.own() // the id is kept
	id = agent.Lookup(r.attrs, AttrTenant)
	t, fresh, err := c.reg.Learn(id)
	if err != nil {
		c.session.Press()
		c.overloaded.Add(1)
		return nil, ReasonOverloaded
	}
	if fresh {
		c.session.Rouse()
	}
	if !r.begin() {
		return nil, ReasonOverloaded
	}
	select {
	case <-c.reg.Ready(t):
		return t.Set(), ReasonLimit
	case <-ctx.Done():
	case <-r.timer.C:
		r.over = true
	case <-c.session.Done():
	}
	if set := t.Set(); set != nil {
		return set, ReasonLimit
	}
	return nil, ReasonUnknown
}

func (c *Client) unknownDecision(n int64, tenant string) Decision {
	if tenant != "" && c.reg.Off(tenant) {
		c.refused.Add(1)
		return Decision{Reason: ReasonSwitch}
	}
	if c.reg.Mode() == limit.ModeAllowAll {
		c.unaccounted.Add(n)
		return Decision{Allowed: true, Reason: ReasonSwitch}
	}
	c.unknown.Add(1)
	if c.cfg.failure == FailOpen {
		c.unaccounted.Add(n)
		return Decision{Allowed: true, Reason: ReasonUnknown}
	}
	return Decision{Reason: ReasonUnknown, RetryAfter: time.Second}
}

// refusal decides where no limit is asked.
func (c *Client) refusal(set *agent.Set) (Decision, bool) {
	d := Decision{}
	switch set.Refusal {
	case agent.NotRefused:
		return d, false
	case agent.Switched:
		d.Reason = ReasonSwitch
	case agent.Suspended:
		d.Reason = ReasonSuspended
	case agent.Capped:
		d.Reason = ReasonCapped
	case agent.NoPlan:
		d.Reason = ReasonNoPlan
	}
	if d.Reason != ReasonSwitch && c.reg.Mode() == limit.ModeAllowAll {
		return Decision{Allowed: true, Reason: ReasonSwitch}, true
	}
	c.refused.Add(1)
	return d, true
}

// run asks the limits of set. again says that the buckets are no longer those in
// force: nothing is held, and the caller matches again.
func (r *request) run(ctx context.Context, set *agent.Set) (d Decision, again bool) {
	d, again, stop := r.ask(ctx, set)
	if !stop {
		d, again = r.conclude(ctx, set)
	}
	if !again && set.Trial != nil {
		r.c.try(set, r.n, r.attrs, d.Allowed)
	}
	return d, again
}

// ask asks the limits without waiting for their answers, but for those that have to come before the next is asked. stop
// says that the request was decided, or, with again, that it has to match again.
func (r *request) ask(ctx context.Context, set *agent.Set) (d Decision, again, stop bool) {
	c := r.c
	r.mode = c.reg.Mode()
	r.room(len(set.Items))
	var met uint64 // of the limits from first on, a bit each, those that hold the request
	for i, first := 0, -1; i < len(set.Items); i++ {
		it := &set.Items[i]
		if at := i / limit.MatcherRules * limit.MatcherRules; at != first {
			first, met = at, set.Match(at, r.attrs)
		}
		if met>>(i-first)&1 == 0 || r.endless && it.Slots {
			continue
		}
		if it.Vet && it.Rule.Listed(r.attrs) == limit.AllowedBy {
			continue
		}
		if r.waiting > 0 && r.waitsItsTurn(it) {
			// What the others answer comes first: a place in a queue is not taken for nothing,
			// and only slots that come before in the order of all are kept in it.
			if d, again, stop := r.wait(ctx); stop {
				return d, again, true
			}
		}
		var err error
		e := c.reg.Entry(&set.List, i, r.attrs)
		if e == nil || e.Dead() {
			e, err = c.reg.Touch(set, &set.List, i, r.attrs, c.now())
		}
		if errors.Is(err, agent.ErrGone) {
			r.giveBack(false)
			return d, true, true // the caller sees whether the client is closed
		}
		if err != nil {
			c.session.Press()
			c.overloaded.Add(1)
			r.giveBack(false)
			return Decision{Reason: ReasonOverloaded, RetryAfter: time.Second, by: speaks(set, it, nil)}, false, true
		}
		if it.Vet && r.mode != limit.ModeAllowAll {
			if reason := c.vetted(it, e, r.n, r.attrs); reason != ReasonLimit {
				e.Refuse(r.n)
				if r.mode == limit.ModeNormal {
					r.giveBack(false)
					return Decision{Reason: reason, RetryAfter: c.later(e, reason), by: leg{it, e}.speaks()}, false, true
				}
			}
		}
		r.add(it, e)
		last := len(r.legs) - 1
		if r.mode == limit.ModeAllowAll {
			if !r.admit() {
				return d, true, true
			}
			continue
		}
		if e.Take(r.n) {
			r.taken[last] = true
			continue
		}
		switch v, lost := c.refill(e, r.n, r.patient && !it.Soft); v.Outcome {
		case bucket.Admitted:
			r.taken[last] = true
		case bucket.Rematch:
			r.giveBack(false)
			return d, true, true
		default:
			switch {
			case r.mode == limit.ModeShadowAll:
				if v.Outcome == bucket.Wait {
					c.prime(e, r.n)
				}
				if !r.admit() {
					return d, true, true
				}
			case v.Outcome == bucket.Wait:
				if d, again, stop := r.await(ctx); stop {
					return d, again, true
				}
			case it.Soft && !(lost && c.closes(it, e)):
				if d, again, stop := r.exceed(ctx, last); stop {
					return d, again, true
				}
			default:
				h := r.legs[last]
				r.giveBack(false)
				return c.denial(h, v, lost), false, true
			}
		}
	}
	return d, false, false
}

// conclude waits for the answers that are to come and decides the request.
func (r *request) conclude(ctx context.Context, set *agent.Set) (d Decision, again bool) {
	if r.waiting > 0 {
		if d, again, stop := r.wait(ctx); stop {
			return d, again
		}
	}
	if len(r.legs) == 0 {
		switch {
		case r.mode == limit.ModeAllowAll:
			return Decision{Allowed: true, Reason: ReasonSwitch}, false
		case r.together:
			return Decision{Allowed: true, Reason: ReasonUnlimited}, false
		}
		return r.c.nothingHolds(r.attrs), false
	}
	if d, denied := r.outranked(r.mode); denied {
		return d, false
	}
	switch {
	case r.reserves != nil:
		r.keep(r.mode)
	case !r.together:
		r.release()
	}
	return r.allowed(set), false
}

// remember has the next request of these attributes find its buckets at once, where all of them are there and the
// attributes alone say which limits hold it.
func (r *request) remember(set *agent.Set) {
	var items [8]*agent.Item
	var entries [8]*agent.Entry
	k, strictest := 0, 0
	for first := 0; first < len(set.Items); first += limit.MatcherRules {
		for met := set.Match(first, r.attrs); met != 0; met &= met - 1 {
			i := first + bits.TrailingZeros64(met)
			it := &set.Items[i]
			if it.Vet {
				listed := it.Rule.Listed(r.attrs)
				if listed == limit.AllowedBy {
					continue
				}
				if listed == limit.DeniedBy || it.Rule.Reserved(r.attrs) > 0 {
					return
				}
			}
			e := r.c.reg.Entry(&set.List, i, r.attrs)
			if k == len(items) || e == nil || e.Dead() {
				return
			}
			items[k], entries[k] = it, e
			if it.Rank < items[strictest].Rank {
				strictest = k
			}
			k++
		}
	}
	r.c.reg.Remember(r.key, r.attrs, set, items[:k], entries[:k], strictest)
}

// release says that what the request has in hand is not put back any more.
func (r *request) release() {
	for i, h := range r.legs {
		if r.said[i] {
			h.entry.Release(r.n)
			r.said[i] = false
		}
	}
}

// allowed is the decision on a request that has the units of all its limits.
func (r *request) allowed(set *agent.Set) Decision {
	strictest, above := 0, false
	for i, h := range r.legs {
		if h.item.Rank < r.legs[strictest].item.Rank {
			strictest = i
		}
		above = above || h.entry.Overage()
	}
	d := Decision{Allowed: true, by: r.deciders(set, strictest)}
	switch {
	case r.mode != limit.ModeNormal:
		d.Reason = ReasonSwitch
	case above:
		d.Reason = ReasonOverage
	}
	return d
}

// add goes on to another bucket, and announces what has to be known before units
// are taken of it. Even the last one's may have to go back while others are waited for.
func (r *request) add(it *agent.Item, e *agent.Entry) {
	r.meet(leg{it, e}, false, false)
	if it.Hold || r.waiting > 0 || r.reserves != nil || r.together {
		r.say(len(r.said) - 1)
	}
	if it.Inherited {
		e.Inherit(r.n)
	}
}

// meet notes a bucket that the request asks, or has asked.
func (r *request) meet(h leg, taken, said bool) {
	r.legs = append(r.legs, h)
	r.taken = append(r.taken, taken)
	r.said = append(r.said, said)
	r.windows = append(r.windows, windowOf(h))
	r.waiters = append(r.waiters, nil)
}

// windowOf is the window that units taken of a bucket are of; 0 without one.
func windowOf(h leg) int64 {
	if h.entry == nil || h.item.Rule.Limit.Algorithm != limit.FixedWindow {
		return 0
	}
	return h.entry.Window()
}

// deciders is what the decision keeps of an allowed request.
func (r *request) deciders(set *agent.Set, strictest int) any {
	ending := r.endingFor(set)
	if len(r.legs) == 1 && ending == nil {
		return r.legs[0].speaks()
	}
	return &origin{r.legs[strictest], othersOf(r.legs, strictest), ending}
}

// say announces that units of bucket i may be put back, where they are billed.
func (r *request) say(i int) {
	if h := r.legs[i]; !r.said[i] && (h.item.Metered || r.reserves != nil) {
		h.entry.Hold(r.n)
		r.said[i] = true
	}
}

// admit counts the last bucket's units as admitted whatever it holds. On false the
// bucket is no more, and nothing is held.
func (r *request) admit() bool {
	last := len(r.legs) - 1
	e := r.legs[last].entry
	if !e.Enter() {
		r.giveBack(false)
		return false
	}
	defer e.Leave()
	if r.c.closed.Load() {
		r.giveBack(false)
		return false
	}
	e.Admit(r.n)
	r.taken[last] = true
	return true
}
