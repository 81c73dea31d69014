package client

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/ledger"
	"github.com/f4ee788f/quota/internal/limit"
)

// What a tenant used until its plan changed is of the plan that it had, and another tenant's usage is as it was.
func TestUsageUntilAPlanChangeIsOfThePlanBefore(t *testing.T) {
	user := Attribute{"user", "u"}
	for _, c := range []struct {
		name   string
		by     []string
		parent bool
	}{
		{"one bucket a tenant", nil, false},
		{"one for each user", []string{"user"}, false},
		{"of a tenant with a parent", nil, true},
		{"of one for each user, with a parent", []string{"user"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := func(name, meter string) limit.Plan {
				return limit.Plan{Name: name, Limits: []limit.Limit{{
					Name: "requests", Algorithm: limit.TokenBucket, Rate: perSecond(1000), Burst: 1000, By: c.by, Meter: meter, EpsilonPPM: limit.DefaultEpsilonPPM,
				}}}
			}
			p := &limit.Policy{Version: 1, Plans: []limit.Plan{plan("p", "before"), plan("q", "after")}, Slot: 5 * time.Minute}
			bubble(t, p, func(t *testing.T, s *fake) {
				parent := ""
				if c.parent {
					parent = "org"
					s.tenant(limit.Tenant{ID: "org", Plan: "p"})
				}
				s.tenant(limit.Tenant{ID: "a", Plan: "p", Parent: parent})
				s.tenant(limit.Tenant{ID: "b", Plan: "p"})
				g := dial(t, s)
				before := drive(g, 1, 10, tenant("a"), user)
				other := drive(g, 1, 7, tenant("b"), user)
				s.tenant(limit.Tenant{ID: "a", Plan: "q", Parent: parent})
				time.Sleep(time.Second)
				after := drive(g, 1, 20, tenant("a"), user)
				other += drive(g, 1, 5, tenant("b"), user)
				shut(t, g)
				for _, w := range []struct {
					tenant, meter string
					units         int64
				}{{"a", "before", before}, {"a", "after", after}, {"b", "before", other}, {"b", "after", 0}} {
					if got := s.billed(func(r ledger.Row) bool { return r.Tenant == w.tenant && r.Meter == w.meter }); got != w.units {
						t.Errorf("%s has %d units of %q, want %d: %+v", w.tenant, got, w.meter, w.units, s.allRows())
					}
				}
			})
		})
	}
}
