package load

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Meter is the meter of a load's policy.
const Meter = "requests"

// namedTenants bounds the tenants that a policy names, because a document names at most so many. The rest have the
// default plan.
const namedTenants = 10_000

// Quota is a tenant's limit: a token bucket.
type Quota struct {
	Rate  float64 // units a second
	Burst int64   // units
}

// Epsilon is how far the gateways together may exceed a limit of a load's policy: the product's default.
const Epsilon = 0.05

// Plans is a load's policy, and what it means for each tenant.
type Plans struct {
	Document string
	Quotas   []Quota // by tenant
	// Changing are tenants whose plan changes while the load is under way, from and to Low and High.
	Changing  []int
	Low, High Quota
}

// The plans of tenants that change theirs.
const (
	lowPlan, highPlan = "changing-low", "changing-high"
	changing          = 10 // tenants, if there are enough
)

// extra names the attributes of limits beyond a request's first.
func extra(i int) string {
	return [...]string{"", "endpoint", "user", "region", "app", "key", "device", "method"}[i]
}

// maxLimits is the most limits that a load's requests meet.
const maxLimits = 8

// NewPlans makes the policy of a load. Without a share to saturate, a fifth of the tenants are on a plan of 500 a
// second. Three tenths are on one of 5,000, and half on one that no load reaches.
//
// Otherwise limits are sized to the tenant's part of c.Rate. A saturated tenant's limit is a third to two thirds of it,
// another's 1⅓ to four times as much.
func NewPlans(c Config) (*Plans, error) {
	if c.Saturated == 0 {
		return fixedPlans(c), nil
	}
	w, err := weights(c.Shape, c.Tenants)
	if err != nil {
		return nil, err
	}
	p := &Plans{Quotas: make([]Quota, c.Tenants)}
	r := rand.New(rand.NewPCG(c.Seed, 5))
	demand := func(i int) float64 { return w[i] * float64(c.Rate) }
	quota := func(rate float64) Quota {
		perMinute := max(int64(rate*60), 1)
		return Quota{float64(perMinute) / 60, max(int64(rate*c.Burst.Seconds()), 1)}
	}
	if c.Changes > 0 {
		p.Changing = c.changing()
	}
	if len(p.Changing) > 0 {
		d := demand(p.Changing[len(p.Changing)/2])
		p.Low, p.High = quota(d/2), quota(2*d)
	}
	var b strings.Builder
	b.WriteString("default_plan: enterprise\nplans:\n")
	top := quota(max(2*demand(0), 1_000_000))
	for _, plan := range []struct {
		name  string
		quota Quota
	}{{"free", quota(100)}, {"paid", quota(1000)}, {"enterprise", top}, {lowPlan, p.Low}, {highPlan, p.High}} {
		if plan.quota.Burst == 0 {
			continue
		}
		fmt.Fprintf(&b, "  %s:\n    limits:\n      - {name: requests, by: [tenant], %s, meter: %s}\n", plan.name, plan.quota, Meter)
		for i := 1; i < c.Limits; i++ {
			fmt.Fprintf(&b, "      - {name: by-%s, by: [tenant, %s], %s}\n", extra(i), extra(i), top)
		}
	}
	b.WriteString("tenants:\n")
	for i := range p.Quotas {
		p.Quotas[i] = top
		switch x := r.Float64(); {
		case i >= namedTenants:
			continue
		case slices.Contains(p.Changing, i):
			p.Quotas[i] = p.High
			fmt.Fprintf(&b, "  - {id: %s, plan: %s}\n", c.Tenant(i), highPlan)
			continue
		case c.saturated(i):
			p.Quotas[i] = quota(demand(i) / (1.5 + 1.5*x))
		default:
			p.Quotas[i] = quota(demand(i) / (0.25 + 0.5*x))
		}
		fmt.Fprintf(&b, "  - {id: %s, plan: %s, limits: [{name: requests, %s}]}\n", c.Tenant(i), [...]string{"free", "paid", "enterprise"}[i%3], p.Quotas[i])
	}
	p.Document = b.String()
	return p, nil
}

// saturated reports whether the i-th tenant asks for more than its limit.
func (c *Config) saturated(i int) bool { return (i+1)*c.Saturated/100 > i*c.Saturated/100 }

// changing lists the tenants that change their plans. They are the first unsaturated ones after the busiest tenth.
func (c *Config) changing() (tenants []int) {
	for i := c.Tenants / 10; i < min(c.Tenants, namedTenants) && len(tenants) < changing; i++ {
		if !c.saturated(i) {
			tenants = append(tenants, i)
		}
	}
	return tenants
}

// String is the quota as a policy has it.
func (q Quota) String() string {
	return fmt.Sprintf("rate: %d/min, burst: %d", int64(q.Rate*60+0.5), q.Burst)
}

func fixedPlans(c Config) *Plans {
	quotas := map[string]Quota{"free": {500, 1000}, "paid": {5000, 10_000}, "enterprise": {1_000_000, 2_000_000}}
	p := &Plans{Quotas: make([]Quota, c.Tenants)}
	var b strings.Builder
	b.WriteString("default_plan: enterprise\nplans:\n")
	for _, plan := range []string{"free", "paid", "enterprise"} {
		fmt.Fprintf(&b, "  %s:\n    limits:\n      - {name: requests, by: [tenant], %s, meter: %s}\n", plan, quotas[plan], Meter)
		for i := 1; i < c.Limits; i++ {
			fmt.Fprintf(&b, "      - {name: by-%s, by: [tenant, %s], %s}\n", extra(i), extra(i), quotas["enterprise"])
		}
	}
	b.WriteString("tenants:\n")
	for i := range p.Quotas {
		plan := "enterprise"
		switch {
		case i >= namedTenants:
		case i%10 == 1 || i%10 == 6:
			plan = "free"
		case i%10 == 2 || i%10 == 4 || i%10 == 8:
			plan = "paid"
		}
		p.Quotas[i] = quotas[plan]
		if i < namedTenants {
			fmt.Fprintf(&b, "  - {id: %s, plan: %s}\n", c.Tenant(i), plan)
		}
	}
	p.Document = b.String()
	return p
}
