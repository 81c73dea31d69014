package load

import (
	"testing"

	"github.com/f4ee788f/quota/internal/policy"
)

func TestPolicyIsValid(t *testing.T) {
	for _, tenants := range []int{1, 1000, 100_000} {
		d, err := policy.Parse("load.yaml", []byte(Policy(tenants)))
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
