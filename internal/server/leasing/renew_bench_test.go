package leasing

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/servertest"
	"github.com/f4ee788f/quota/internal/server/view"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// known is a policy store of tenants that are all of one plan.
type known struct{ policystore.Store }

func (known) Heads(context.Context) (policystore.Heads, error) {
	return policystore.Heads{Version: 1}, nil
}

func (known) Keys(context.Context, string, int, bool) ([]policystore.Key, error) { return nil, nil }

func (known) Switches(context.Context) (limit.Switches, error) { return limit.Switches{}, nil }

func (known) Version(context.Context, int64) (policystore.Version, error) {
	return policystore.Version{Number: 1, Text: "plans: {p: {limits: [{name: requests, rate: 1000/s, burst: 1000}, {name: per-user, by: [user], rate: 1000/s, burst: 1000}]}}"}, nil
}

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
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	v, err := view.New(known{}, servertest.Nobody{}, time.Now, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	if err := v.Look(b.Context()); err != nil {
		b.Fatal(err)
	}
	s := &Service{view: v, leases: memstore.New(), grants: nothing{}, metrics: m, holders: newHolders(&holdLedger{}, m), now: time.Now}
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

// nothing notes no grants.
type nothing struct{}

func (nothing) Answered(string, int64, []*quotav1.Renewal, []int, []lease.Renewal, []lease.Answer) {}
