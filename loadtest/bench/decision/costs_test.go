package main

import (
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/loadtest/bench"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// ofCosts bounds what three limits of two costs take, in the time of the same limits of one.
const ofCosts = 1.3

// byCosts decides requests that cost so much, of users that three limits hold.
func byCosts(t *testing.T, name string, users []string, policy *quotav1.Policy, units int64, costs ...client.Cost) candidate {
	c, stop, err := bench.Open(policy, func(string) string { return "p" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(stop()) })
	do := func(_, n int) {
		for i := range n {
			d := c.Decide(ctx, client.Request{Units: units, Costs: costs, Attributes: []client.Attribute{client.Tenant("acme"), client.User(users[i*7919%len(users)])}})
			must(d.Allowed)
		}
	}
	do(0, 8*len(users)) // the first touches, and what makes requests known
	return candidate{name, do}
}

// Three limits of two costs, one of which counts a weighted sum of both, take little more than three limits of one. They
// allocate nothing either.
func TestCostsBound(t *testing.T) {
	const micro = 1_000_000
	three := func(weights ...[]*quotav1.Weight) *quotav1.Policy {
		p := &quotav1.Policy{Costs: []string{"tokens_in", "tokens_out"}, Plans: []*quotav1.Plan{{Name: "p"}}}
		for i, w := range weights {
			l := bench.Limit(fmt.Sprint("limit-", i), fmt.Sprint("meter-", i), "user")
			if w != nil {
				l.Cost = &quotav1.Weighing{Weights: w}
			}
			p.Plans[0].Limits = append(p.Plans[0].Limits, l)
		}
		return p
	}
	in, out := &quotav1.Weight{Cost: "tokens_in", Micros: micro}, &quotav1.Weight{Cost: "tokens_out", Micros: 4.5 * micro}
	for _, n := range []int{1, 1000} {
		users := make([]string, n)
		for i := range users {
			users[i] = fmt.Sprintf("user-%08x", uint32(i)*2654435761)
		}
		all := []candidate{
			byCosts(t, "two costs", users, three(nil, []*quotav1.Weight{in}, []*quotav1.Weight{in, out}), 1, client.Cost{Name: "tokens_in", Units: 900}, client.Cost{Name: "tokens_out", Units: 300}),
			byCosts(t, "one cost", users, three(nil, nil, nil), 900),
			byCosts(t, "one unit", users, three(nil, nil, nil), 1),
		}
		var ratio float64
		for range 3 {
			f := measure(1, 41, all)
			ratio = f[0].ns / f[1].ns
			t.Logf("%d users: two costs %.1f ns, %.2f × one cost, %.2f × one unit; %.3f allocations", n, f[0].ns, ratio, f[0].ns/f[2].ns, f[0].allocs)
			if n == 1 && f[0].allocs > 0 { // of many requests some are not remembered
				t.Errorf("%d users: %.3f allocations a decision, want none", n, f[0].allocs)
			}
			if ratio <= 1.15*ofCosts { // a figure so near its bound is left
				break
			}
		}
		if ratio > 1.15*ofCosts {
			t.Errorf("%d users: three limits of two costs take %.2f times those of one, want at most %.2f", n, ratio, ofCosts)
		}
	}
}
