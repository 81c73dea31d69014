package leasing

import (
	"fmt"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func rulesWith(t *testing.T, names ...string) *limit.Rules {
	t.Helper()
	p := &limit.Policy{Plans: []limit.Plan{{Name: "p"}}}
	for _, name := range names {
		p.Plans[0].Limits = append(p.Plans[0].Limits, limit.Limit{Name: name, Rate: limit.Rate{Units: 1, Per: 1e9}, Burst: 1})
	}
	rules, err := limit.CompilePolicy(p)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// Leases are counted by limit; limits that only overrides name share one label,
// and those that no policy names any more have none.
func TestLimitMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	l := m.limits
	l.follow(rulesWith(t, "requests", "old"), rulesWith(t, "tried"))
	spec := &lease.Spec{Algorithm: limit.TokenBucket, Units: 100, Period: 1_000_000, Burst: 200}
	answered := func(r *quotav1.Renewal, g *quotav1.Grant) {
		l.of(r.Limit, kindOf(r)).answered(r, g, spec, &lease.Grant{Out: 190, Drawn: 102 * limit.Micro})
	}
	granted := func(tokens int64) *quotav1.Grant {
		return &quotav1.Grant{Status: quotav1.Grant_STATUS_GRANTED, Tokens: tokens, Generation: 2}
	}
	answered(&quotav1.Renewal{Limit: "requests", Held: 3, Generation: 2}, granted(10))
	answered(&quotav1.Renewal{Limit: "requests", Held: 1, Generation: 1}, granted(5))
	answered(&quotav1.Renewal{Limit: "requests"}, &quotav1.Grant{Status: quotav1.Grant_STATUS_GRANTED, DenyForMs: 7, Generation: 2})
	answered(&quotav1.Renewal{Limit: "requests"}, &quotav1.Grant{Status: quotav1.Grant_STATUS_UNAVAILABLE})
	answered(&quotav1.Renewal{Limit: "requests", Kind: quotav1.Renewal_KIND_OVERAGE}, granted(2))
	answered(&quotav1.Renewal{Limit: "tried", Shadow: true}, granted(4))
	answered(&quotav1.Renewal{Limit: "old"}, granted(1))
	for i := range 1000 {
		answered(&quotav1.Renewal{Limit: fmt.Sprint("own", i)}, granted(1))
	}
	want := func(name string, values map[string]float64) {
		t.Helper()
		got := servertest.Gathered(t, registry, "quota_server_"+name)
		if !maps.Equal(got, values) {
			t.Errorf("%s: got %v, want %v", name, got, values)
		}
	}
	want("granted_tokens_total", map[string]float64{
		"requests limit": 15, "requests overage": 2, "tried shadow": 4, "old limit": 1, otherLimits + " limit": 1000,
	})
	want("returned_tokens_total", map[string]float64{
		"requests limit": 4, "requests overage": 0, "tried shadow": 0, "old limit": 0, otherLimits + " limit": 0,
	})
	for _, name := range []string{"deny_grants_total", "healed_leases_total"} {
		if got := servertest.Gathered(t, registry, "quota_server_"+name)["requests limit"]; got != 1 {
			t.Errorf("%s of requests: %v, want 1", name, got)
		}
	}
	// 190 of 200 tokens are out, and trickles of 1.02 times the rate.
	for name, want := range map[string]map[float64]uint64{"out_ratio": {0.9: 0, 1: 3}, "trickle_ratio": {1.01: 0, 1.05: 3}} {
		for bound, n := range want {
			if got := below(t, registry, "quota_server_"+name, "requests", bound); got != n {
				t.Errorf("%s: %d renewals of requests up to %v, want %d", name, got, bound, n)
			}
		}
	}
	renewals := servertest.Gathered(t, registry, "quota_server_renewals_total")
	if renewals["requests GRANTED"] != 4 || renewals["requests UNAVAILABLE"] != 1 {
		t.Errorf("renewals: %v", renewals)
	}
	l.follow(rulesWith(t, "requests"), nil)
	answered(&quotav1.Renewal{Limit: "requests"}, granted(1))
	answered(&quotav1.Renewal{Limit: "old"}, granted(1))
	want("granted_tokens_total", map[string]float64{"requests limit": 16, "requests overage": 2, otherLimits + " limit": 1001})
}

// below returns how many observations of a limit's own kind are up to a bound.
func below(t *testing.T, registry *prometheus.Registry, name, limit string, bound float64) uint64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name || m.GetLabel()[0].GetValue() != "limit" || m.GetLabel()[1].GetValue() != limit {
				continue
			}
			for _, b := range m.GetHistogram().GetBucket() {
				if b.GetUpperBound() == bound {
					return b.GetCumulativeCount()
				}
			}
		}
	}
	t.Fatalf("%s of %s has no bound %v", name, limit, bound)
	return 0
}
