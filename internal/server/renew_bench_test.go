package server

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/server/authn"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// known is a policy store of tenants that are all of one plan.
type known struct{ policy.Store }

func (known) Tenants(_ context.Context, ids []string) ([]limit.Tenant, error) {
	tenants := make([]limit.Tenant, len(ids))
	for i, id := range ids {
		tenants[i] = limit.Tenant{ID: id, Exists: true, Plan: "p", Revision: 1}
	}
	return tenants, nil
}

// BenchmarkRenew answers one call of 1,000 renewals, of as many users of ten tenants, over the store
// in process: what the server itself costs. ns/bucket and allocs/bucket are per renewal.
func BenchmarkRenew(b *testing.B) {
	const buckets = 1000
	rate := limit.Rate{Units: 1000, Per: time.Second}
	rules, err := limit.CompilePolicy(&limit.Policy{Version: 1, Plans: []limit.Plan{{Name: "p", Limits: []limit.Limit{
		{Name: "requests", Algorithm: limit.TokenBucket, Rate: rate, Burst: 1000, EpsilonPPM: limit.DefaultEpsilonPPM},
		{Name: "per-user", Algorithm: limit.TokenBucket, By: []string{"user"}, Rate: rate, Burst: 1000, EpsilonPPM: limit.DefaultEpsilonPPM},
	}}}})
	if err != nil {
		b.Fatal(err)
	}
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	v := newView(known{}, nil, slog.New(slog.DiscardHandler), m)
	v.now = &inForce{rules: rules}
	s := &leaseService{view: v, leases: memstore.New(), metrics: m, holders: newHolders(&holdLedger{}, m), now: time.Now}
	ctx := authn.WithPrincipal(context.Background(), authn.Principal{Open: true})
	req := &quotav1.RenewRequest{Agent: "gateway-1", Epoch: 1, PolicyVersion: 1}
	for i := range buckets {
		req.Renewals = append(req.Renewals, &quotav1.Renewal{
			Limit: "per-user", Tenant: fmt.Sprintf("tenant-%d", i%10), Values: []string{fmt.Sprintf("user-%08d", i)}, Began: 1,
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range req.Renewals {
			r.Number++
			r.Admitted += 5
		}
		resp, err := s.Renew(ctx, req)
		if err != nil {
			b.Fatal(err)
		}
		if g := resp.Grants[buckets-1]; g.Status != quotav1.Grant_STATUS_GRANTED {
			b.Fatal(g)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/buckets, "ns/bucket")
}
