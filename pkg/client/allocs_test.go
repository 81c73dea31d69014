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
	var last Decision
	ask := func() { last = c.Allow(t.Context(), request...) }
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

// So does a denial.
func TestADenialAllocatesNothing(t *testing.T) {
	unraced.Only(t)
	plentyAndFive(t, func(t *testing.T, c *Client, request []Attribute, _ *agent.Entry) {
		allocatesNothing(t, c, false, request...)
	})
}
