package doors

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/pkg/client"
)

const weighedByModel = `
gateways: {envoy: {domain: edge, descriptors: {tenant: tenant, model: model}, after: [used], hits: tokens}}
costs: [tokens]
plans:
  free:
    limits:
      - {name: spend, by: [tenant], rate: 1/hour, burst: 5000, cost: {by: model, weights: {small: {tokens: 1}}}, meter: spend}
      - {name: tokens, by: [tenant], rate: 1/hour, burst: 5000, cost: tokens, meter: tokens}
tenants: [{id: acme, plan: free}]
`

// Negative hits that cannot be understood keep no other descriptor of the call from being decided: after an error Envoy
// would let all of it pass.
func TestEnvoyDecidesBesideARefundItCannotRead(t *testing.T) {
	n := newEnvoyNode(t, weighedByModel)
	n.want("the lease", ok, edge(own(descriptor("tenant=acme", "model=small"), 1)), ok)
	n.want("all but 99", ok, edge(own(descriptor("tenant=acme", "model=small"), 4900)), ok)
	for name, d := range map[string][]string{
		"a bad tenant":            {"tenant=bad id", "model=small"},
		"a tenant without a plan": {"tenant=nobody", "model=small"},
		"no model of the limit's": {"tenant=acme", "model=new"},
	} {
		n.want("5,000 of 99 beside a refund of "+name, over, edge(own(descriptor("tenant=acme", "model=small"), 5000), negative(own(descriptor(d...), 7))), over, ok)
	}
	if got := n.end("acme")[0]["spend"][0]; got != 4901 {
		t.Errorf("the ledger has %d of spend, want 4901", got)
	}
}

// A report of a model that one limit has no weights for is booked at the others, and so are the other reports of the call.
func TestEnvoyBooksBesideAReportALimitCannotWeigh(t *testing.T) {
	n := newEnvoyNode(t, weighedByModel)
	n.want("two reports", ok, edge(own(descriptor("tenant=acme", "model=small", "used="), 100), own(descriptor("tenant=acme", "model=new", "used="), 7)), ok, ok)
	if got := n.end("acme")[0]; got["spend"][0] != 100 || got["tokens"][0] != 107 {
		t.Errorf("the ledger has %v, want 100 of spend and 107 tokens", got)
	}
}

// refunding is a client that gives back what it is asked to, but nothing for a tenant without a plan.
type refunding struct {
	hesitant
	units int64
	most  int64
}

func (r *refunding) Refund(_ context.Context, requests ...client.Request) (bool, error) {
	for _, q := range requests {
		if tenantOf(q) == "nobody" {
			return false, &client.NotBookedError{Reason: client.ReasonNoPlan}
		}
		r.units += q.Units
		r.most = max(r.most, q.Units)
	}
	return true, nil
}

// Negative hits are given back as far as a report may go, in requests that may be. What is above that, or cannot be
// understood, is counted as kept.
func TestEnvoyGivesLargeHitsBack(t *testing.T) {
	for name, c := range map[string]struct {
		hits   uint64
		units  int64
		beside string
		result string
	}{
		"a few":                       {hits: 7, units: 7, result: resultRefunded},
		"three billion":               {hits: 3_000_000_000, units: 3_000_000_000, result: resultRefunded},
		"as many as may be":           {hits: mostReported, units: mostReported, result: resultRefunded},
		"one more":                    {hits: mostReported + 1, units: mostReported, result: resultKept},
		"2^64 - 1":                    {hits: 1<<64 - 1, units: mostReported, result: resultKept},
		"behind a tenant of no plan":  {hits: 7, units: 7, beside: "tenant=nobody", result: resultKept},
		"behind another of that sort": {hits: 7, units: 14, beside: "tenant=acme", result: resultRefunded},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			m, err := NewMetrics(registry)
			if err != nil {
				t.Fatal(err)
			}
			r := new(refunding)
			e := NewEnvoy(r, m, slog.New(slog.DiscardHandler))
			q := edge(negative(own(descriptor("tenant=acme"), c.hits)))
			if c.beside != "" {
				q.Descriptors = append(edge(negative(own(descriptor(c.beside), 7))).GetDescriptors(), q.GetDescriptors()...)
			}
			if _, err := e.ShouldRateLimit(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			if r.units != c.units || r.most > 1_000_000_000 {
				t.Errorf("%d units are given back, %d at once; want %d, a billion at once", r.units, r.most, c.units)
			}
			if n := counted(t, registry, "result="+c.result); n != 1 {
				t.Errorf("%v answers are counted as %s, want 1", n, c.result)
			}
		})
	}
}
