package load

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/policy"
)

func TestPlansAreValid(t *testing.T) {
	for _, tenants := range []int{1, 1000, 100_000} {
		p, err := NewPlans(Config{Tenants: tenants, Limits: 1})
		if err != nil {
			t.Fatal(err)
		}
		d, err := policy.Parse("load.yaml", []byte(p.Document))
		if err != nil {
			t.Fatalf("%d tenants: %v", tenants, err)
		}
		if got, want := len(d.TenantSpecs()), min(tenants, namedTenants); got != want {
			t.Errorf("%d tenants: the document names %d, want %d", tenants, got, want)
		}
		plans := make(map[string]int)
		for _, s := range d.TenantSpecs() {
			plans[s.Plan]++
		}
		if tenants == 1000 && (plans["free"] != 200 || plans["paid"] != 300 || plans["enterprise"] != 500) {
			t.Errorf("tenants by plan: got %v, want 200 free, 300 paid, 500 enterprise", plans)
		}
	}
}

// Limits sized to demand: the stated share of tenants asks for 1.5 to 3 times its limit, the others for a
// quarter to three quarters of theirs, and the document says the same.
func TestPlansSizedToDemand(t *testing.T) {
	for _, tenants := range []int{100, 10_000} {
		c := Config{Tenants: tenants, Rate: 5_000_000, Shape: Zipf, Saturated: 20, Limits: 3, Burst: 10 * time.Second, Changes: time.Second, Seed: 1}
		p, err := NewPlans(c)
		if err != nil {
			t.Fatal(err)
		}
		d, err := policy.Parse("load.yaml", []byte(p.Document))
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Changing) != changing {
			t.Errorf("%d tenants change their plan, want %d", len(p.Changing), changing)
		}
		w, _ := weights(c.Shape, tenants)
		saturated, denied := 0, 0.0
		for i, q := range p.Quotas {
			ratio := w[i] * float64(c.Rate) / q.Rate
			switch {
			case ratio >= 1.49 && ratio <= 3.2:
				saturated++
				denied += w[i] * (1 - 1/ratio)
			case (ratio > 0.76 || ratio < 0.24) && !slices.Contains(p.Changing, i):
				t.Errorf("tenant %d asks for %.2f of its limit", i, ratio)
			}
		}
		if saturated != tenants/5 || denied > 0.2 {
			t.Errorf("%d of %d tenants are saturated, and %.2f of all requests to be denied", saturated, tenants, denied)
		}
		byID := make(map[string]float64)
		for _, l := range d.Tenants() {
			if len(l.Overrides) == 1 {
				byID[l.ID] = float64(l.Overrides[0].Rate.Units) / l.Overrides[0].Rate.Per.Seconds()
			}
		}
		if got, want := byID[c.Tenant(4)], p.Quotas[4].Rate; math.Abs(got-want) > 1e-6*want {
			t.Errorf("tenant 4: the document says %v a second, the plans %v", got, want)
		}
	}
}

// A load that would not do what its flags say is refused, and why.
func TestLoadsThatWouldSayNothing(t *testing.T) {
	valid := Config{Gateways: 1, Tenants: 100, Duration: time.Second, Rate: 1000, Shape: Zipf, Limits: 1, Saturated: 20, Burst: time.Second, Changes: time.Second}
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	for why, change := range map[string]func(*Config){
		"20 % of 4 tenants are none":     func(c *Config) { c.Tenants = 4 },
		"beyond the busiest tenth there": func(c *Config) { c.Saturated = 99 },
	} {
		c := valid
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want that %s", err, why)
		}
	}
}
