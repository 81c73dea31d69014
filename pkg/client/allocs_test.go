package client

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
	"github.com/f4ee788f/quota/internal/core/wire"
)

// allocatesNothing fails if a request's decisions allocate, or are not as they should be.
func allocatesNothing(t *testing.T, c *Client, allowed bool, request ...Attribute) {
	t.Helper()
	decidesWithout(t, allowed, func() Decision { return c.Allow(t.Context(), request...) })
}

// decidesWithout fails if decisions allocate, or are not as they should be.
func decidesWithout(t *testing.T, allowed bool, decide func() Decision) {
	t.Helper()
	var last Decision
	ask := func() { last = decide() }
	for range 100 {
		ask()
	}
	if n := testing.AllocsPerRun(1000, ask); n != 0 || last.Allowed != allowed {
		t.Errorf("%v allocations a decision, the last %+v; want none, and allowed %t", n, last, allowed)
	}
}

// An allowed decision allocates nothing, whether its request is remembered or cannot be.
func TestAnAllowedDecisionAllocatesNothing(t *testing.T) {
	unraced.Only(t)
	for what, reserve := range map[string]limit.Reserve{"remembered": {}, "never remembered": {LowPPM: 1}} {
		t.Run(what, func(t *testing.T) {
			s := newPlenty()
			s.policy = wire.PolicyToProto(plans(1, limit.Limit{
				Name: "requests", By: []string{"tenant"}, Rate: perSecond(1_000_000), Burst: 10_000_000, Meter: "requests", Reserve: reserve,
			}))
			s.tenant = func(id string) limit.Tenant { return limit.Tenant{ID: id, Exists: true, Plan: "p", Revision: 1} }
			s.tokens = 1_000_000
			allocatesNothing(t, s.dial(t, 0), true, Tenant("a"), Priority("low"))
		})
	}
}

// So does one of several costs, where one limit weighs them by an attribute.
func TestADecisionByCostsAllocatesNothing(t *testing.T) {
	unraced.Only(t)
	many := func(name string) limit.Limit {
		return limit.Limit{Name: name, Rate: perSecond(1_000_000), Burst: 100_000_000, Meter: name}
	}
	in, sum := many("in"), many("sum")
	in.Cost.Weights = []limit.Weight{{Cost: "in", Micros: limit.Micro}}
	sum.Cost = limit.Weighing{By: "model", Rows: []limit.WeighingRow{{Value: limit.AnyValue, Weights: []limit.Weight{{Cost: "in", Micros: 1}, {Cost: "out", Micros: 4_500_000}}}}}
	p := plans(1, many("requests"), in, sum)
	p.Costs = []string{"in", "out"}
	s := newPlenty()
	s.policy = wire.PolicyToProto(p)
	s.tenant = func(id string) limit.Tenant { return limit.Tenant{ID: id, Exists: true, Plan: "p", Revision: 1} }
	s.tokens = 1_000_000_000
	c := s.dial(t, 0)
	for _, q := range []Request{
		{Units: 1, Costs: []Cost{{"in", 9}, {"out", 7}}}, {Units: 1}, {Costs: []Cost{{"out", 1}}},
	} {
		q.Attributes = []Attribute{Tenant("a"), {"model", "small"}}
		decidesWithout(t, true, func() Decision { return c.Decide(t.Context(), q) })
	}
}

// So does a denial.
func TestADenialAllocatesNothing(t *testing.T) {
	unraced.Only(t)
	plentyAndFive(t, func(t *testing.T, c *Client, request []Attribute, _ *agent.Entry) {
		allocatesNothing(t, c, false, request...)
	})
}
