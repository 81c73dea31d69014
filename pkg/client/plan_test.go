package client

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
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

// What a parent used until its own plan changed is of the plan that it had, and so is what its limit denied those below, whether it
// was ever asked for itself or not; their usage is of their own plans all along.
func TestUsageUntilAParentsPlanChange(t *testing.T) {
	user := Attribute{"user", "u"}
	for _, c := range []struct {
		name string
		by   []string
		asks bool // the parent has requests itself
	}{
		{"one bucket a tenant", nil, true},
		{"one for each user", []string{"user"}, true},
		{"of a parent without requests", nil, false},
		{"of one for each user, without requests", []string{"user"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := func(name, meter string, rate limit.Rate, burst int64) limit.Plan {
				return limit.Plan{Name: name, Limits: []limit.Limit{{
					Name: "requests", Algorithm: limit.TokenBucket, Rate: rate, Burst: burst, By: c.by, Meter: meter, EpsilonPPM: limit.DefaultEpsilonPPM,
				}}}
			}
			hourly := limit.Rate{Units: 1, Per: time.Hour}
			p := &limit.Policy{Version: 1, Plans: []limit.Plan{plan("p", "own", hourly, 1000), plan("before", "before", hourly, 20), plan("after", "after", perSecond(100), 20)}, Slot: 5 * time.Minute}
			bubble(t, p, func(t *testing.T, s *fake) {
				s.tenant(limit.Tenant{ID: "org", Plan: "before"})
				s.tenant(limit.Tenant{ID: "a", Plan: "p", Parent: "org"})
				g := dial(t, s)
				var before, after int64
				below := drive(g, 1, 10, tenant("a"), user)
				if c.asks {
					before = drive(g, 1, 7, tenant("org"), user)
				}
				left := 20 - below - before
				below += drive(g, 1, int(left)+5, tenant("a"), user) // the last five are denied by the parent's limit
				s.tenant(limit.Tenant{ID: "org", Plan: "after"})
				time.Sleep(2 * time.Second) // the parent's bucket is refilled at the new rate
				below += drive(g, 1, 3, tenant("a"), user)
				if c.asks {
					after = drive(g, 1, 4, tenant("org"), user)
				}
				shut(t, g)
				if below != 20-before+3 || c.asks && (before != 7 || after != 4) {
					t.Errorf("%d units of the tenant below were admitted, %d and %d of its parent", below, before, after)
				}
				for _, w := range []struct {
					tenant, meter    string
					admitted, denied int64
				}{
					{"org", "before", before, 5}, {"org", "after", after, 0}, {"org", "own", 0, 0},
					{"a", "own", below, 0}, {"a", "before", 0, 0}, {"a", "after", 0, 0},
				} {
					var denied int64
					for _, r := range s.allRows() {
						if r.Tenant == w.tenant && r.Meter == w.meter {
							denied += r.Denied
						}
					}
					if got := s.billed(func(r ledger.Row) bool { return r.Tenant == w.tenant && r.Meter == w.meter }); got != w.admitted || denied != w.denied {
						t.Errorf("%s has %d units of %q, and %d denied, want %d and %d: %+v", w.tenant, got, w.meter, denied, w.admitted, w.denied, s.allRows())
					}
				}
			})
		})
	}
}
