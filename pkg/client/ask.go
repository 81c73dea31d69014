package client

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/handover"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// step says how a request goes on.
type step uint8

const (
	onward  step = iota // with the next limit
	decided             // not at all: request.decision is there
	rematch             // from the start, with nothing in hand: the limits that it asked are no longer in force
)

// decide decides a request, and ends it.
func (r *request) decide(ctx context.Context) Decision {
	defer r.end()
	r.before = handover.Of(ctx)
	r.start(ctx)
	r.finish(ctx)
	if r.reserves != nil {
		r.reserves.took(r.n, r.costs)
	}
	if r.set != nil && r.set.Trying {
		r.c.try(r)
	}
	return r.decision
}

// start finds the request's limits and asks them. After it the request is decided, or waits for answers.
func (r *request) start(ctx context.Context) {
	for s := rematch; s == rematch; {
		if r.set = r.limits(ctx); r.set == nil {
			return
		}
		if r.peeks || r.looks() {
			r.decision = r.peek(nil)
			return
		}
		if r.repeated {
			r.repeated = false
			r.remember()
		}
		if s = r.ask(ctx); s == onward && r.waiting == 0 {
			s = r.conclude(ctx)
		}
	}
}

// finish waits for the answers of a request that was started.
func (r *request) finish(ctx context.Context) {
	for r.waiting > 0 {
		if r.conclude(ctx) == rematch {
			r.start(ctx)
		}
	}
}

// limits returns the limits that apply to the request, waiting for its tenant to be known. Where no limit is to be
// asked it returns nil, and the request is decided.
func (r *request) limits(ctx context.Context) *agent.Set {
	set, why := r.find(ctx)
	switch {
	case set == nil && why == ReasonUnknown:
		r.decision = r.unknown()
	case set == nil:
		r.decision = Decision{Reason: why}
	default:
		var refused bool
		if r.decision, refused = r.c.refusal(set); refused {
			return nil
		}
		if r.reserves != nil {
			r.likely(set.Costs())
		}
		if r.weigh(&set.List) == nil {
			return set
		}
		r.c.refused.Add(1)
		r.decision = Decision{Reason: ReasonInvalid}
	}
	return nil
}

// find returns the set that applies to the request, waiting for its tenant to be known. Where there is none, the reason
// is ReasonClosed, ReasonInvalid, ReasonOverloaded or ReasonUnknown.
func (r *request) find(ctx context.Context) (*agent.Set, Reason) {
	c := r.c
	if c.closed.Load() {
		return nil, ReasonClosed
	}
	id := r.tenant()
	set := c.reg.Find(id)
	switch {
	case !inRange(r.n, r.costs), set == nil && id != "" && !limit.ValidTenant(id):
		c.refused.Add(1)
		return nil, ReasonInvalid
	case set != nil:
		return set, ReasonLimit
	case c.reg.Version() == 0 || id == "" || c.lost.Load():
		return nil, ReasonUnknown
	}
	t, fresh, err := c.reg.Learn(strings.Clone(id))
	if err != nil {
		r.crowded()
		return nil, ReasonOverloaded
	}
	if fresh {
		c.session.Rouse()
	}
	if !r.mayWait() {
		return nil, ReasonOverloaded
	}
	select {
	case <-c.reg.Ready(t):
	case <-ctx.Done():
	case <-r.timer.C:
		r.timer.Reset(0) // for the next wait
	case <-c.session.Done():
	}
	if set = t.Set(); set == nil {
		return nil, ReasonUnknown
	}
	return set, ReasonLimit
}

// tenant returns the tenant's id; empty for none.
func (r *request) tenant() string { return match.Lookup(r.attrs, limit.AttrTenant) }

// crowded notes that a bucket or a tenant found no room for the request.
func (r *request) crowded() {
	if !r.background {
		r.c.session.Press()
		r.c.overloaded.Add(1)
	}
}

// unknown decides a request while the policy or its tenant is not known.
func (r *request) unknown() Decision {
	c := r.c
	if !nameable(r.costs) {
		c.refused.Add(1)
		return Decision{Reason: ReasonInvalid}
	}
	if tenant := r.tenant(); tenant != "" && c.reg.Off(tenant) {
		c.refused.Add(1)
		return Decision{Reason: ReasonSwitch}
	}
	d := Decision{Allowed: true, Reason: ReasonSwitch}
	if c.reg.Mode() != limit.ModeAllowAll {
		c.unknown.Add(1)
		if c.cfg.failure != FailOpen {
			return inASecond(ReasonUnknown, nil)
		}
		d.Reason = ReasonUnknown
	}
	c.unaccounted.Add(r.n)
	r.unaccounted = true
	return d
}

var refusals = [...]Reason{
	agent.Switched: ReasonSwitch, agent.Suspended: ReasonSuspended, agent.Capped: ReasonCapped, agent.NoPlan: ReasonNoPlan,
}

// refusal decides for a tenant whose limits are not asked, and reports whether it is one.
func (c *Client) refusal(set *agent.Set) (d Decision, refused bool) {
	if set.Refusal == agent.NotRefused {
		return d, false
	}
	d.Reason = refusals[set.Refusal]
	if d.Reason != ReasonSwitch && c.reg.Mode() == limit.ModeAllowAll {
		return Decision{Allowed: true, Reason: ReasonSwitch}, true
	}
	c.refused.Add(1)
	return d, true
}

// applicable is the limits of a list that apply to a request.
type applicable struct {
	list    *agent.List
	attrs   []limit.Attribute
	endless bool // but for those of slots
}

// in returns the limits of a list that apply to the request.
func (r *request) in(list *agent.List) applicable { return applicable{list, r.attrs, r.endless} }

// each yields them, with their places in the list, in the order of asking.
func (a applicable) each(yield func(i int, it *match.Item) bool) {
	for first := 0; first < len(a.list.Items); first += limit.MatcherRules {
		met := a.list.Match(first, a.attrs)
		for i := first; met != 0; i, met = i+1, met>>1 {
			it := &a.list.Items[i]
			if met&1 == 0 || a.endless && it.Slots || it.Vet && it.Rule.Listed(a.attrs) == limit.AllowedBy {
				continue
			}
			if !yield(i, it) {
				return
			}
		}
	}
}

// bucket returns the request's bucket of limit i of a list, and makes it where it is not there.
func (r *request) bucket(list *agent.List, i int) (*agent.Entry, error) {
	if e := r.c.reg.Entry(list, i, r.attrs); e != nil && !e.Dead() {
		return e, nil
	}
	return r.c.reg.Touch(r.set, list, i, r.attrs, r.c.reg.Now())
}

// ask asks the limits. It waits only for answers that have to come before the next limit is asked.
func (r *request) ask(ctx context.Context) step {
	r.mode = r.c.reg.Mode()
	r.room(len(r.set.Items))
	for i, it := range r.in(&r.set.List).each {
		if r.waiting > 0 && r.waitsItsTurn(it) {
			// A place in a queue is not taken for nothing: the others' answers come first. Only slots are kept while
			// the request waits in it, in one order for all requests.
			if s := r.waitForAnswers(ctx); s != onward {
				return s
			}
		}
		e, err := r.bucket(&r.set.List, i)
		switch {
		case errors.Is(err, agent.ErrGone):
			return r.restart() // limits sees whether the client is closed
		case err != nil:
			r.crowded()
			return r.deny(inASecond(ReasonOverloaded, sourceIn(r.set, it, nil)))
		}
		if s := r.askLimit(ctx, it, e); s != onward {
			return s
		}
	}
	return onward
}

// askLimit asks a limit for the units, by the request's bucket of it.
func (r *request) askLimit(ctx context.Context, it *match.Item, e *agent.Entry) step {
	n := r.units(it)
	if r.mode != limit.ModeAllowAll && n > 0 {
		if d, denied := r.c.vet(it, e, n, r.attrs); denied {
			e.Refuse(n)
			if r.mode == limit.ModeNormal {
				return r.deny(d)
			}
		}
	}
	// The last limit's units, too, may have to go back while others are waited for.
	mayGoBack := it.Hold || r.waiting > 0 || r.reserves != nil || r.together
	r.claims = append(r.claims, r.claim(it, e, n, mayGoBack))
	if n == 0 {
		return r.keep(&r.claims[len(r.claims)-1])
	}
	return r.askBucket(ctx, len(r.claims)-1)
}

// keep has the bucket of a claim on nothing stay while a reservation lasts: more may be spent of it yet.
func (r *request) keep(h *claim) step {
	if r.reserves == nil {
		return onward
	}
	if !r.c.enter(h.entry) {
		return r.restart()
	}
	h.entry.Pin()
	h.entry.Leave()
	h.pinned = true
	return onward
}

// claim tells a bucket of n units that are about to be taken from it.
func (r *request) claim(it *match.Item, e *agent.Entry, n int64, mayGoBack bool) claim {
	h := claim{item: it, entry: e, n: n, window: windowOf(it, e)}
	r.weighs(&h, r.set.Costs())
	if mayGoBack {
		r.hold(&h)
	}
	if it.Inherited {
		e.Inherit(n)
	}
	return h
}

// weighs notes how a claim's limit makes units of costs of those names.
func (r *request) weighs(h *claim, costs *limit.Costs) {
	if h.item.Weighs {
		h.weighs, _ = h.item.Rule.Weights(r.attrs)
		h.costs = costs
	}
}

// windowOf is the window that units taken now belong to; 0 without windows.
func windowOf(it *match.Item, e *agent.Entry) int64 {
	if it.Rule.Limit.Algorithm != limit.FixedWindow {
		return 0
	}
	return e.Window()
}

// hold announces that units of a claim may go back, where they are billed.
func (r *request) hold(h *claim) {
	if !h.held && (h.item.Metered || r.reserves != nil) {
		h.entry.Hold(h.n)
		h.held = true
	}
}

// askBucket asks the bucket of claim i for the units.
func (r *request) askBucket(ctx context.Context, i int) step {
	h := &r.claims[i]
	if r.mode == limit.ModeAllowAll {
		return r.admit(h)
	}
	until := h.entry.Until()
	if h.taken = h.entry.Take(h.n) && h.entry.InTime(h.n, until, r.c.clock); h.taken {
		return onward
	}
	v, lost := r.c.refill(h.entry, h.n, r.patient && !h.item.Soft)
	switch {
	case v.Outcome == bucket.Admitted:
		h.taken = true
		if v.Here {
			h.window = v.Window // which this request may have begun
		}
		return onward
	case v.Outcome == bucket.Rematch:
		return r.restart()
	case v.Outcome == bucket.Denied:
		return r.refused(ctx, i, v, lost)
	case r.mode == limit.ModeShadowAll:
		r.c.prime(h.entry, h.n)
		return r.admit(h)
	}
	return r.await(ctx, i, r.waitsItsTurn(h.item) && !h.item.Soft)
}

// admit counts the units of a claim as admitted, whether or not they are there: an operator's switch says so.
func (r *request) admit(h *claim) step {
	if !r.c.enter(h.entry) {
		return r.restart()
	}
	defer h.entry.Leave()
	h.entry.Admit(h.n)
	h.taken = true
	return onward
}

// refused goes on where the bucket of claim i denied: with the overage of a soft limit, in its queue, or not at all.
func (r *request) refused(ctx context.Context, i int, v bucket.Verdict, lost bool) step {
	h := &r.claims[i]
	overage := h.entry.Overage()
	switch {
	case r.mode == limit.ModeShadowAll:
		return r.admit(h)
	case !h.item.Soft || lost && r.c.closes(h.item, h.entry):
	case !overage && h.entry != h.under:
		if s, is := r.exceed(ctx, i); is {
			return s
		}
	case overage && r.patient && !lost:
		return r.comeDown(ctx, i)
	}
	if overage && h.under != nil {
		return r.deny(r.c.sooner(r.c.denial(h.item, h.under, v, lost), h.under, h.n, lost))
	}
	return r.deny(r.c.denial(h.item, h.entry, v, lost))
}

// deny decides the request, with nothing in hand.
func (r *request) deny(d Decision) step {
	r.giveBack(false)
	r.decision = d
	return decided
}

// restart has the request match again, with nothing in hand.
func (r *request) restart() step {
	r.giveBack(false)
	return rematch
}

// conclude waits for the answers that are to come, and decides the request.
func (r *request) conclude(ctx context.Context) step {
	if s := r.waitForAnswers(ctx); s != onward {
		return s
	}
	if len(r.claims) == 0 {
		switch {
		case r.mode == limit.ModeAllowAll:
			r.decision = Decision{Allowed: true, Reason: ReasonSwitch}
		case !r.together && r.tenant() == "":
			r.c.refused.Add(1)
			r.decision = Decision{Reason: ReasonNoTenant}
		default:
			r.decision = Decision{Allowed: true, Reason: ReasonUnlimited}
		}
		return decided
	}
	if r.mode == limit.ModeNormal {
		if s := r.vetAgain(); s != onward {
			return s
		}
	}
	switch {
	case r.reserves != nil:
		r.reserve()
	case !r.together:
		r.release()
	}
	r.decision = r.allowed()
	return decided
}

// release says that the units in hand do not go back any more.
func (r *request) release() {
	for i := range r.claims {
		if h := &r.claims[i]; h.held {
			h.entry.Release(h.n)
			h.held = false
		}
	}
}

// allowed is the decision on a request that has the units of all its limits.
func (r *request) allowed() Decision {
	d := Decision{Allowed: true}
	strictest := 0
	for i, h := range r.claims {
		if h.item.Rank < r.claims[strictest].item.Rank {
			strictest = i
		}
		if h.entry.Overage() {
			d.Reason = ReasonOverage
		}
	}
	if r.mode != limit.ModeNormal {
		d.Reason = ReasonSwitch
	}
	first := &r.claims[strictest]
	slots := r.slots()
	if len(r.claims) == 1 && slots == nil {
		d.by = sourceOf(first.item, first.entry)
		return d
	}
	o := &origin{item: first.item, entry: first.entry, slots: slots}
	for i := range r.claims {
		if i != strictest {
			o.others.add(r.claims[i].entry)
		}
	}
	d.by = o
	return d
}

// remember has the next request of these attributes find its buckets at once. All of them have to be there, and the
// attributes alone have to say which limits apply.
func (r *request) remember() {
	var items [8]*match.Item
	var entries [8]*agent.Entry
	k, strictest := 0, 0
	for i, it := range r.in(&r.set.List).each {
		if it.Vet && (it.Rule.Listed(r.attrs) == limit.DeniedBy || it.Rule.Reserved(r.attrs) > 0) {
			return
		}
		e := r.c.reg.Entry(&r.set.List, i, r.attrs)
		if k == len(items) || e == nil || e.Dead() {
			return
		}
		items[k], entries[k] = it, e
		if it.Rank < items[strictest].Rank {
			strictest = k
		}
		k++
	}
	r.c.reg.Remember(r.key, r.attrs, r.set, items[:k], entries[:k], strictest)
}

// inASecond denies a request that may come again soon.
func inASecond(reason Reason, by any) Decision {
	return Decision{Reason: reason, RetryAfter: time.Second, by: by}
}
