package server_test

import (
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/pkg/client"
)

// llm is a policy of requests, tokens, and money by model in millionths.
const llm = `
costs: [tokens_in, tokens_out]
default_plan: p
plans:
  p:
    limits:
      - {name: requests, rate: 600/minute, meter: requests}
      - {name: output, rate: 1000/hour, cost: tokens_out, meter: tokens_out}
      - {name: input, cost: tokens_in, meter: tokens_in}
      - name: spend
        rate: 100000/day
        meter: spend
        cost: {by: model, weights: {small: {tokens_in: 0.15, tokens_out: 0.6}, "*": {tokens_in: 3, tokens_out: 15}}}
`

// asking is a request of so many tokens.
func asking(model string, in, out int64) client.Request {
	return client.Request{
		Units: 1, Costs: []client.Cost{{Name: "tokens_in", Units: in}, {Name: "tokens_out", Units: out}},
		Attributes: acme(client.Attribute{Name: "model", Value: model}),
	}
}

// The ledger has of each meter what its limit makes of all costs that were admitted, over gateways and versions.
func TestMetersOfCosts(t *testing.T) {
	inBothWorlds(t, time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC), llm, func(t *testing.T, w *world) {
		one, other := w.gateway("one"), w.gateway("other")
		want := make(map[string]int64)
		decide := func(c *client.Client, model string, in, out, spent int64) {
			t.Helper()
			if d := c.Decide(t.Context(), asking(model, in, out)); !d.Allowed {
				t.Errorf("%d and %d tokens of %s: %+v by %s", in, out, model, d, d.Limit())
				return
			}
			want["requests"]++
			want["input"] += in
			want["output"] += out
			want["spend"] += spent
		}
		decide(one, "small", 101, 50, 46) // ⌈15.15 + 30⌉
		decide(other, "small", 1, 1, 1)
		decide(one, "large", 7, 3, 66)
		r, d := other.ReserveRequest(t.Context(), asking("large", 10, 100))
		if !d.Allowed {
			t.Fatalf("%+v by %s", d, d.Limit())
		}
		if err := r.Commit(1, client.Cost{Name: "tokens_out", Units: 40}); err != nil {
			t.Error(err)
		}
		want["requests"]++
		want["output"] += 40
		want["spend"] += 600
		w.apply(llm[:len(llm)-2] + "}\n  other: {limits: [{name: bytes, rate: 5/minute, cost: tokens_in}]}\n")
		time.Sleep(2 * time.Second) // it is in force
		decide(other, "small", 0, 5, 3)
		w.shut(one, other)
		got := make(map[string]int64)
		for limit, row := range w.settled(ledger.Query{}) {
			got[limit] += row.Admitted
		}
		if !maps.Equal(got, want) {
			t.Errorf("the ledger has %v, want %v", got, want)
		}
	})
}

// Of eight gateways whose first requests come at once, against a budget for one of them, one is admitted.
func TestFirstRequestsOfABudgetForOne(t *testing.T) {
	inWorld(t, noon, llm, func(t *testing.T, w *world) {
		all := make([]*client.Client, 8)
		for i := range all {
			all[i] = w.gateway(string(rune('a' + i)))
		}
		var group sync.WaitGroup
		var admitted, denied atomic.Int64
		for _, c := range all {
			group.Go(func() {
				switch d := c.Decide(t.Context(), asking("small", 10, 900)); {
				case d.Allowed:
					admitted.Add(1)
				default:
					denied.Add(1)
				}
			})
		}
		group.Wait()
		if admitted.Load() != 1 || denied.Load() != 7 {
			t.Errorf("%d were admitted and %d denied, want 1 and 7", admitted.Load(), denied.Load())
		}
		w.shut(all...)
	})
}
