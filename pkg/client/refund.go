package client

import (
	"context"
	"errors"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
)

// Refund gives back what requests did not need after all: it is as if they had not taken it. A limit gets back at most
// what this client took there since its last renewal and its last report (WithReportInterval), in this window. So
// nothing is taken back that the server was told of, no meter falls, and what is given back can be spent again. What is
// above that stays billed: reserve where a cost is known only later. Weighed units are rounded down.
//
// whole reports whether each limit got all of it back. Overage of soft limits is not given back, nor is anything to
// limits without weights for a request. Limits of slots are left out. On a *NotBookedError nothing was given back; with
// ReasonUnknown and ReasonOverloaded there was nothing.
// It waits as Book does, and is safe for concurrent use.
func (c *Client) Refund(ctx context.Context, requests ...Request) (whole bool, err error) {
	for {
		charges, whole, err := c.charges(ctx, requests, true)
		whole = whole && err == nil
		for i := range charges {
			h := &charges[i]
			if err == nil {
				got, served := h.entry.Refund(c.reg.Now(), h.n, h.item.Inherited)
				bucket.Serve(served)
				whole = whole && got == h.n
			}
			h.entry.Leave()
		}
		switch {
		case !errors.Is(err, agent.ErrGone):
			return whole, err
		case c.closed.Load():
			return false, &NotBookedError{Reason: ReasonClosed}
		}
	}
}
