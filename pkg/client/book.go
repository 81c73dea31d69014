package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// NotBookedError says why nothing of a call to Book was booked: ReasonInvalid, ReasonNoPlan, ReasonClosed, ReasonOverloaded, or ReasonUnknown
// where the policy or the tenant is not known here.
type NotBookedError struct{ Reason Reason }

func (e *NotBookedError) Error() string {
	return fmt.Sprintf("client: nothing was booked: %s", e.Reason)
}

// Book counts usage that happened already, of one or several requests: it is admitted by every limit that holds them, billed, and denied by
// none, whatever there is. What a limit has not is a debt, which it pays with what it gets next; later requests are denied until then. That is so
// without a lease, in an outage, for a tenant that is suspended, capped or switched off, and for units beyond the burst, up to
// 1,000,000,000 of a request.
//
// All requests are booked, or none is and the error is a *NotBookedError. It waits for the server only where a tenant is not known yet.
// Limits of slots are left out.
func (c *Client) Book(ctx context.Context, requests ...Request) error {
	for {
		charges, why := c.charges(ctx, requests)
		switch {
		case why == reasonGone && !c.closed.Load():
			continue // the limits changed
		case why == reasonGone:
			why = ReasonClosed
		case why == ReasonLimit:
			for _, ch := range charges {
				c.charge(ch)
			}
			return nil
		}
		return &NotBookedError{why}
	}
}

// charge is what a limit is to count of a request. Its bucket is in use until it did.
type charge struct {
	leg
	n int64
}

// reasonGone says, between these functions, that a bucket is no more.
const reasonGone = ReasonOutage

// charges finds the buckets of all limits that hold the requests. Where the reason is not ReasonLimit there are none.
func (c *Client) charges(ctx context.Context, requests []Request) (all []charge, why Reason) {
	defer func() {
		if why != ReasonLimit {
			for _, ch := range all {
				ch.entry.Leave()
			}
			all = nil
		}
	}()
	for _, of := range requests {
		if of.Units < 0 || of.Units > limit.MaxUnits {
			return all, ReasonInvalid
		}
		r := c.request(of.Units, attributesOf(of.Attributes))
		all, why = c.chargesOf(ctx, r, all)
		r.end()
		if why != ReasonLimit {
			return all, why
		}
	}
	if c.closed.Load() {
		return all, ReasonClosed // what is in use from before that is waited for
	}
	return all, ReasonLimit
}

// chargesOf adds those of one request.
func (c *Client) chargesOf(ctx context.Context, r *request, all []charge) ([]charge, Reason) {
	if c.closed.Load() {
		return all, ReasonClosed
	}
	set, why := c.find(ctx, r)
	switch {
	case set == nil:
		return all, why
	case set.Refusal == agent.NoPlan, set.Refusal != agent.NotRefused && len(set.Items) == 0:
		return all, ReasonNoPlan
	case r.n == 0:
		return all, ReasonLimit
	}
	lists := []*agent.List{&set.List}
	if set.Trial != nil {
		lists = append(lists, &set.Trial.Limits, &set.Trial.Version)
	}
	for _, list := range lists {
		for i := range list.Items {
			it := &list.Items[i]
			if it.Slots || !it.Rule.Applies(r.attrs) || it.Vet && it.Rule.Listed(r.attrs) == limit.AllowedBy {
				continue
			}
			e, err := c.reg.Touch(set, list, i, r.attrs, c.now())
			switch {
			case errors.Is(err, agent.ErrGone), err == nil && !e.Enter():
				return all, reasonGone
			case err != nil && list != lists[0]:
				continue // what is tried beside the policy in force
			case err != nil:
				c.session.Press()
				c.overloaded.Add(1)
				return all, ReasonOverloaded
			}
			all = append(all, charge{leg{it, e}, r.n})
		}
	}
	return all, ReasonLimit
}

func (c *Client) charge(ch charge) {
	if ch.item.Inherited { // see Reservation.spend
		ch.entry.Hold(ch.n)
		ch.entry.Inherit(ch.n)
	}
	ch.entry.Charge(ch.n)
	if ch.item.Inherited {
		ch.entry.Release(ch.n)
	}
	c.attend(ch.entry)
	ch.entry.Leave()
}
