package policytest

import (
	"reflect"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// A document that leaves a tenant out is another version; the tenant stays as it is. Documents put back nothing that is
// set by hand from then on, until one names the tenant again. That one says what it takes back.
func testLeftOut(t *testing.T, s policystore.Store) {
	ctx := t.Context()
	named := plans + "tenants: [{id: acme, plan: paid, limits: [{name: requests, rate: 7/hour}]}]\n"
	apply(t, s, named)
	was := one(t, s, "acme")
	a := apply(t, s, plans)
	if !a.Changed || a.Version != 2 || strings.Join(a.Changes, "\n") != "tenant acme: no longer in the document; it stays as it is" || len(a.Warnings) != 0 {
		t.Errorf("left out: %+v", a)
	}
	if got := one(t, s, "acme"); got.Plan != "paid" || !reflect.DeepEqual(got.Overrides, was.Overrides) {
		t.Errorf("left out: %+v, want %+v", got, was)
	}
	if c := must[policy.LimitChange](t)(s.SetTenantLimit(ctx, "ann", "acme", override(t, "requests", "rate", "9/hour"), false)); len(c.Warnings) != 0 {
		t.Errorf("warnings of a tenant that no document names: %q", c.Warnings)
	}
	must[limit.Tenant](t)(s.SetTenantPlan(ctx, "ann", "acme", "free"))
	if a := apply(t, s, strings.Replace(plans, "100/hour", "150/hour", 1)); len(a.Warnings) != 0 {
		t.Errorf("warnings: %v", a.Warnings)
	}
	if got := one(t, s, "acme"); got.Plan != "free" || got.Overrides[0].Rate.Units != 9 {
		t.Errorf("what was set by hand: %+v", got)
	}
	again, err := s.Apply(ctx, "ann", parse(t, named), 0, true)
	said := ""
	for _, w := range again.Warnings {
		said += w.Message + "\n"
	}
	want := "tenant acme was not made by the document in force; this one says what it has from now on\n" +
		"tenant acme: its plan free was set by hand; the document makes it paid\n" +
		"tenant acme: its override of limit requests was set by hand; the document says otherwise\n"
	if err != nil || said != want {
		t.Errorf("named again: %v\n%s\nwant\n%s", err, said, want)
	}
}
