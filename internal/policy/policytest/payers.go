package policytest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// A payer is kept with its time. A new tenant's payer pays since it began. A change counts from the next slot on, or
// from the time that the document says, and never within a closed period.
func testPayers(t *testing.T, s policystore.Store) {
	org := func(tenants string) policystore.Applied {
		t.Helper()
		return apply(t, s, plans+"tenants: [{id: org, plan: paid}, {id: own, plan: paid, parent: org}, "+tenants+"]\n")
	}
	pays := func(tenant string, at time.Time) string {
		t.Helper()
		p := must[terms.Payers](t)(s.Payers(t.Context(), tenant))
		payer, _ := p.At(tenant, at.Unix())
		return payer
	}
	want := func(what, tenant string, at time.Time, payer string) {
		t.Helper()
		if got := pays(tenant, at); got != payer {
			t.Errorf("%s: %s pays for %s at %s, want %s", what, got, tenant, at, payer)
		}
	}
	begin, now, soon := time.Unix(0, 0), time.Now(), time.Now().Add(10*time.Minute)
	org("{id: shop, plan: paid, parent: org, billing: {pays: parent}}, {id: shop/eu, plan: paid, parent: shop, billing: {pays: parent}}")
	want("new", "shop/eu", begin, "org")
	want("new", "own", begin, "own")
	if got := pays("nobody", now); got != "nobody" {
		t.Errorf("a tenant that nobody made: %s", got)
	}
	home := must[terms.Household](t)(s.Household(t.Context(), "org"))
	if len(home.Members) != 2 || home.Members[0].ID != "shop" || home.Members[1].ID != "shop/eu" || len(home.Members[1].Subscriptions) != 1 || len(home.Payers) != 2 {
		t.Errorf("household: %+v", home)
	}
	a := org("{id: shop, plan: paid, parent: org}, {id: shop/eu, plan: paid, parent: shop, billing: {pays: parent}}")
	if !strings.Contains(strings.Join(a.Changes, "\n"), "tenant shop: paid by itself from 2") {
		t.Errorf("changes %q", a.Changes)
	}
	want("of before it left", "shop/eu", now.Add(-time.Hour), "org")
	want("after it left", "shop/eu", soon, "shop")
	want("after it left", "shop", soon, "shop")
	if home = must[terms.Household](t)(s.Household(t.Context(), "org")); len(home.Members) != 2 {
		t.Errorf("those that left are still known: %+v", home)
	}
	// A change is scheduled, then comes later, and then not at all.
	year := now.AddDate(1, 0, 0)
	for _, c := range []struct {
		from string
		want [3]string // now, in a year and a month, in two years and a month
	}{
		{"pays: parent, from: " + year.Format(time.DateOnly), [3]string{"shop", "org", "org"}},
		{"pays: parent, from: " + year.AddDate(1, 0, 0).Format(time.DateOnly), [3]string{"shop", "shop", "org"}},
		{"pays: self", [3]string{"shop", "shop", "shop"}},
		{"pays: parent, from: 2020-01-01", [3]string{"org", "org", "org"}}, // a time that is past is now
	} {
		org("{id: shop, plan: paid, parent: org, billing: {" + c.from + "}}")
		for i, payer := range c.want {
			want(c.from, "shop", soon.AddDate(i, i, 0), payer)
		}
		want(c.from, "shop", now.Add(-time.Hour), "org")
	}
	// Nothing changes within a closed period, not even by the clock of a server that is behind.
	to := terms.NextSlot(now.Add(24 * time.Hour))
	closed := terms.Closed{Tenant: "own", Number: 1, Period: billing.Period{Name: "p", From: to - 3600, To: to}, Plans: 1}
	must[terms.Closed](t)(s.CloseStatement(t.Context(), "ann", closed, nil))
	apply(t, s, strings.Replace(policyOf(t, s), "{id: own, plan: paid, parent: org}", "{id: own, plan: paid, parent: org, billing: {pays: parent}}", 1))
	want("what was closed", "own", time.Unix(to-1, 0), "own")
	want("after what was closed", "own", time.Unix(to, 0), "org")
	var audit []string
	for _, r := range must[[]policystore.AuditRow](t)(s.Audit(t.Context(), policystore.AuditQuery{N: 100, Action: "tenant.payer", Object: "own"})) {
		audit = append(audit, r.Actor+" "+r.After)
	}
	if got, want := strings.Join(audit, ", "), fmt.Sprintf(`ann {"from":"from %s","payer":"org"}`, time.Unix(to, 0).UTC().Format(time.RFC3339)); got != want {
		t.Errorf("audit: %s, want %s", got, want)
	}
}

func policyOf(t *testing.T, s policystore.Store) string {
	t.Helper()
	return must[policystore.Version](t)(s.Version(t.Context(), 0)).Text
}

// A tenant pays for so many at a time. A future payer that would close a circle is refused.
func testPayersBounds(t *testing.T, s policystore.Store) {
	text := func(n int) string {
		all := plans + "tenants:\n  - {id: org, plan: free}\n"
		for i := range n {
			all += fmt.Sprintf("  - {id: m%04d, plan: free, parent: org, billing: {pays: parent}}\n", i)
		}
		return all
	}
	_, err := s.Apply(t.Context(), "ann", parse(t, text(terms.MaxMembers+1)), 0, false)
	if is(t, "too many", err, policystore.ErrInvalid); err != nil && !strings.Contains(err.Error(), "it may pay for 1000 at a time") {
		t.Error(err)
	}
	apply(t, s, text(terms.MaxMembers))
	apply(t, s, plans+"tenants: [{id: a, plan: free}, {id: b, plan: free}]\n")
	apply(t, s, plans+"tenants: [{id: a, plan: free, parent: b, billing: {pays: parent}}, {id: b, plan: free}]\n")
	_, err = s.Apply(t.Context(), "ann", parse(t, plans+"tenants: [{id: a, plan: free, billing: {pays: self, from: 2100-01-01}}, {id: b, plan: free, parent: a, billing: {pays: parent}}]\n"), 0, false)
	if is(t, "a circle", err, policystore.ErrInvalid); err != nil && !strings.Contains(err.Error(), "in a circle") {
		t.Error(err)
	}
}
