package relay

import (
	"context"
	"slices"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/limit"
)

// Direct is a lease.Store for agents that may come from a relay at another server: to the store behind it they are newcomers,
// and no proof that it forgot what it granted. Every server that does not relay has one in front of its store.
type Direct struct{ lease.Store }

// Renew implements lease.Store.
func (d Direct) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	if i := slices.IndexFunc(renewals, func(r lease.Renewal) bool { return Issued(r.Generation) }); i >= 0 {
		renewals = slices.Clone(renewals) // the caller still counts by what the agents said
		for ; i < len(renewals); i++ {
			Strange(&renewals[i])
		}
	}
	return d.Store.Renew(ctx, renewals)
}

// Ping is the store's, where it has one.
func (d Direct) Ping(ctx context.Context) error {
	if p, ok := d.Store.(interface{ Ping(context.Context) error }); ok {
		return p.Ping(ctx)
	}
	return nil
}

// Run is the store's, where it has one.
func (d Direct) Run(ctx context.Context, tell func(lease.Loss)) error {
	if w, ok := d.Store.(interface {
		Run(ctx context.Context, tell func(lease.Loss)) error
	}); ok {
		return w.Run(ctx, tell)
	}
	return nil
}

// Strange makes of a renewal for the store one of a newcomer, where its lease was made by a relay.
func Strange(r *lease.Renewal) {
	if !Issued(r.Generation) {
		return
	}
	r.Began, r.Admitted, r.Denied, r.Told, r.Held = r.Number, 0, 0, 0, 0
	r.Trickle, r.ExpiresIn, r.Elapsed, r.Generation = 0, 0, 0, 0
	if r.Spec.Algorithm == limit.TokenBucket && r.Kept == (lease.Sums{}) {
		// The store may still lend to the holder from before it went to the relay. It no longer says what it spent
		// of that, and none of it goes back.
		r.Kept.Demand = max(r.Waiting, 1) * perWaiting
	}
}
