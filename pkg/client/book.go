package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// NotBookedError says why a call to Book booked nothing. Reason is ReasonInvalid, ReasonNoPlan, ReasonClosed,
// ReasonOverloaded, or ReasonUnknown where the policy or the tenant is not known here.
type NotBookedError struct {
	Reason Reason
	Fault  error // says what is invalid; nil with other reasons
}

// Error implements error.
func (e *NotBookedError) Error() string {
	if e.Fault != nil {
		return fmt.Sprintf("client: nothing was booked: %v", e.Fault)
	}
	return fmt.Sprintf("client: nothing was booked: %s", e.Reason)
}

// Unwrap returns the fault.
func (e *NotBookedError) Unwrap() error { return e.Fault }

// Book counts usage that happened already, of one or several requests. Every limit that applies admits it, and it is
// billed; nothing denies it. Units that a limit does not have become a debt, paid with the units it gets next. Later
// requests are denied until then. Book works without a lease, in an outage, and beyond the burst. It also works for a
// tenant that is suspended, capped or switched off. Each request may have 0 to 1,000,000,000 units of each cost, of which
// a limit makes 1,000,000,000,000 at most.
//
// All requests are booked, or none is and the error is a *NotBookedError. Book waits for the server only where a tenant
// is not known yet, no longer than ctx and WithMaxWait. Limits of slots are left out. So are limits without weights for
// a request, which the log tells of once for each policy.
func (c *Client) Book(ctx context.Context, requests ...Request) error {
	for {
		charges, _, err := c.charges(ctx, requests, false)
		if err == nil {
			for i := range charges { // as of a reservation of no units
				h := &charges[i]
				n := h.n
				h.n = 0
				c.spend(h, n)
				h.entry.Leave()
			}
			return nil
		}
		for i := range charges {
			charges[i].entry.Leave()
		}
		switch {
		case !errors.Is(err, agent.ErrGone):
			return err
		case c.closed.Load():
			return &NotBookedError{Reason: ReasonClosed}
		}
	}
}

// charges finds the buckets of all limits that apply to the requests, and enters them. It is not whole where a limit
// has no weights for one. With an error it returns those that were entered; ErrGone says that a bucket is no more.
func (c *Client) charges(ctx context.Context, requests []Request, refunded bool) (all []claim, whole bool, err error) {
	whole = true
	for i := 0; i < len(requests) && err == nil; i++ {
		r := c.request(requests[i].Units, requests[i].Costs, attributesOf(requests[i].Attributes))
		r.endless, r.booked, r.refunded = true, true, refunded
		all, err = r.charges(ctx, all)
		whole = whole && !r.unweighed
		r.end()
	}
	if err == nil && c.closed.Load() {
		err = &NotBookedError{Reason: ReasonClosed} // what was entered before is waited for
	}
	return all, whole, err
}

func invalid(fault error) error { return &NotBookedError{Reason: ReasonInvalid, Fault: fault} }

// fault says why find takes the request for invalid.
func (r *request) fault() error {
	if inRange(r.n, r.costs) {
		return errors.New("the tenant's id is malformed")
	}
	return fmt.Errorf("a request has 0 to %d units of each cost, and %d costs at most", int64(limit.MaxUnits), limit.MaxCosts)
}

// bookable says why the request's costs cannot be; nil where they can. What was measured may have been weighed by an
// earlier policy. So costs that the policy does not name lose nothing of the others, and a limit that would count more
// than limit.MaxUnits counts these.
func (r *request) bookable() error {
	switch {
	case !r.measured:
		return r.cost(&r.set.List)
	case !distinct(r.costs):
		return errors.New("a cost is named twice")
	}
	return nil
}

// charges adds those of one request.
func (r *request) charges(ctx context.Context, all []claim) ([]claim, error) {
	var why Reason
	switch r.set, why = r.find(ctx); {
	case why == ReasonInvalid:
		return all, invalid(r.fault())
	case r.set == nil:
		return all, &NotBookedError{Reason: why}
	case r.set.Refusal == agent.NoPlan, r.set.Refusal != agent.NotRefused && len(r.set.Items) == 0:
		return all, &NotBookedError{Reason: ReasonNoPlan}
	}
	if err := r.bookable(); err != nil {
		r.c.refused.Add(1)
		return all, invalid(err)
	}
	if r.looks() {
		return all, nil
	}
	lists := []*agent.List{&r.set.List}
	if t := r.set.Trial; t != nil {
		lists = append(lists, &t.Limits, &t.Version)
	}
	for _, list := range lists {
		_ = r.cost(list) // what a version on trial does not name costs nothing there
		for i, it := range r.in(list).each {
			n, err := r.weighed(it)
			switch {
			case list != lists[0]: // it is only tried
			case errors.Is(err, errNoWeights): // what is over loses nothing at the others
				if r.unweighed = true; !r.refunded {
					r.c.unweighed.say(r.c.cfg.session.Log, r.c.reg.Version(), it.Rule.Limit.Name, err)
				}
			case err != nil && !r.measured:
				r.c.refused.Add(1)
				return all, invalid(err)
			}
			if n == 0 || err != nil && !r.measured {
				continue
			}
			e, err := r.bucket(list, i)
			switch {
			case errors.Is(err, agent.ErrGone), err == nil && !e.Enter():
				return all, agent.ErrGone
			case err != nil && list != lists[0]:
				continue // it is only tried
			case err != nil:
				r.crowded()
				return all, &NotBookedError{Reason: ReasonOverloaded}
			}
			h := claim{item: it, entry: e, n: n, window: windowOf(it, e)}
			r.weighs(&h, list.Costs())
			all = append(all, h)
		}
	}
	return all, nil
}
