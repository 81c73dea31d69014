package policytest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// testRestarts: a change of a price, even of its fee alone, warns if tenants have the plan. Their tiers then count
// again from the first unit.
func testRestarts(t *testing.T, s policystore.Store) {
	document := func(fee int, tiers string) *policy.Document {
		t.Helper()
		doc, err := policy.Parse("quota.yaml", fmt.Appendf(nil, `plans:
  paid:
    limits: [{name: requests, rate: 100/hour, meter: requests}]
    price: {monthly: %d.00 USD, meters: {requests: %s}}
  gold:
    limits: [{name: requests, rate: 100/hour, meter: requests}]
    price: {monthly: %d.00 USD, meters: {requests: %s}}
`, fee, tiers, fee, tiers))
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	tiers, packages, flat := "{tiers: [{up_to: 1000, unit: 0.05}, {unit: 0.01}]}", "{package: {size: 10, price: 1}}", "{unit: 0.05}"
	if _, err := s.Apply(t.Context(), "ann", document(1, tiers), 0, false); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"acme", "zeta"} {
		if _, err := s.CreateTenant(t.Context(), "ann", id, "paid", ""); err != nil {
			t.Fatal(err)
		}
	}
	const warning = "warning: plan paid: its tiers and packages count anew from this change on, in the period under way of 2 tenants"
	for _, c := range []struct {
		name  string
		doc   *policy.Document
		warns bool
	}{
		{"the same", document(1, tiers), false},
		{"another fee", document(2, tiers), true},
		{"packages", document(2, packages), true},
		{"one price for all units", document(2, flat), false},
		{"another fee, without tiers", document(3, flat), false},
	} {
		for _, dry := range []bool{true, false} {
			a, err := s.Apply(t.Context(), "ann", c.doc, 0, dry)
			if err != nil {
				t.Fatal(err)
			}
			warnings := slices.DeleteFunc(slices.Clone(a.Changes), func(s string) bool { return !strings.HasPrefix(s, "warning") })
			if want := []string{warning}; c.warns && !slices.Equal(warnings, want) || !c.warns && len(warnings) > 0 {
				t.Errorf("%s, dry run %t: got %q, want the warning %t", c.name, dry, a.Changes, c.warns)
			}
		}
	}
}
