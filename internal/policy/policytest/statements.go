package policytest

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// A statement is closed once, after the one before it, and stays as it is.
func testStatements(t *testing.T, s policystore.Store) {
	apply(t, s, plans+"tenants: [{id: acme, plan: free}, {id: other, plan: free}]\n")
	first := terms.Closed{
		Tenant: "acme", Number: 1, Period: billing.Period{Name: "2026-10", From: 1000, To: 2000}, Block: billing.Block{Height: 7, Hash: "ab"},
		Document: `{"a": 1}`, Digest: "d1", Complete: time.UnixMilli(2_000_000),
	}
	closed := must[terms.Closed](t)(s.CloseStatement(t.Context(), "ann", first, nil))
	if closed.Actor != "ann" || time.Since(closed.At) > time.Hour {
		t.Errorf("closed: %+v", closed)
	}
	again := first
	again.Document, again.Digest, again.Block.Height = "{}", "d2", 9
	if got := must[terms.Closed](t)(s.CloseStatement(t.Context(), "bob", again, nil)); got != closed {
		t.Errorf("closed again: %+v, want %+v", got, closed)
	}
	if got := must[terms.Closed](t)(s.Statement(t.Context(), "acme", "2026-10")); got != closed {
		t.Errorf("read: %+v, want %+v", got, closed)
	}
	second := terms.Closed{Tenant: "acme", Number: 2, Period: billing.Period{Name: "2026-11", From: 2000, To: 3000}, Block: billing.Block{Height: 7, Hash: "ab"}, Document: "x", Digest: "d3", Forced: "an agent is gone"}
	for what, bad := range map[string]func(c *terms.Closed){
		"a gap": func(c *terms.Closed) { c.Period.From++ }, "an overlap": func(c *terms.Closed) { c.Period.From-- }, "an older block": func(c *terms.Closed) { c.Block.Height-- },
	} {
		c := second
		bad(&c)
		_, err := s.CloseStatement(t.Context(), "ann", c, nil)
		is(t, what, err, policystore.ErrInvalid)
	}
	stale := second
	stale.Number = 1
	_, err := s.CloseStatement(t.Context(), "ann", stale, nil)
	is(t, "one made before the last was closed", err, policystore.ErrConflict)
	_, err = s.CloseStatement(t.Context(), "", second, nil)
	is(t, "by nobody", err, policystore.ErrInvalid)
	must[terms.Closed](t)(s.CloseStatement(t.Context(), "ann", second, nil))
	_, err = s.CloseStatement(t.Context(), "ann", first, nil)
	is(t, "one made before the last two were closed", err, policystore.ErrConflict)
	list := must[[]terms.Closed](t)(s.Statements(t.Context(), "acme", 0, 10))
	if len(list) != 2 || list[0].Number != 2 || list[0].Forced != second.Forced || list[0].Document != "" || list[1].Digest != "d1" || !list[0].Complete.IsZero() {
		t.Errorf("list: %+v", list)
	}
	if below := must[[]terms.Closed](t)(s.Statements(t.Context(), "acme", 2, 10)); len(below) != 1 || below[0].Number != 1 {
		t.Errorf("below 2: %+v", below)
	}
	if none := must[[]terms.Closed](t)(s.Statements(t.Context(), "other", 0, 10)); len(none) != 0 {
		t.Errorf("another tenant's: %+v", none)
	}
	_, err = s.Statement(t.Context(), "acme", "2026-12")
	is(t, "a period that was not closed", err, policystore.ErrNotFound)
	nobody := second
	nobody.Tenant = "nobody"
	_, err = s.CloseStatement(t.Context(), "ann", nobody, nil)
	is(t, "a tenant that is not there", err, policystore.ErrNotFound)
	audit := must[[]policystore.AuditRow](t)(s.Audit(t.Context(), policystore.AuditQuery{N: 1}))
	if len(audit) != 1 || audit[0].Action != "statement.close" || audit[0].Object != "acme" {
		t.Errorf("audit: %+v", audit)
	}
	// A statement made under another billing is refused, because none could follow it.
	drafted := terms.Closed{Tenant: "other", Number: 1, Period: billing.Period{Name: "2026-10", From: 1000, To: 2000}, Document: "x", Digest: "d4"}
	apply(t, s, plans+"tenants: [{id: other, plan: free, billing: {zone: Asia/Tokyo}}]\n")
	_, err = s.CloseStatement(t.Context(), "ann", drafted, nil)
	is(t, "one made before the billing changed", err, policystore.ErrConflict)
	drafted.Billing = terms.Billing{Zone: "Asia/Tokyo"}.Text()
	apply(t, s, plans+"tenants: [{id: other, plan: free, billing: {zone: UTC}}]\n")
	_, err = s.CloseStatement(t.Context(), "ann", drafted, nil)
	is(t, "one made before the billing changed back", err, policystore.ErrConflict)
	// A draft lacks a plan that began in its period since, also one of a tenant that it pays for.
	now := time.Now().Unix()
	drafted.Billing, drafted.Period.To, drafted.Plans = terms.Billing{}.Text(), now+3600, 1
	must[limit.Tenant](t)(s.SetTenantPlan(t.Context(), "ann", "other", "paid"))
	_, err = s.CloseStatement(t.Context(), "ann", drafted, nil)
	is(t, "one made before the plan changed", err, policystore.ErrConflict)
	drafted.Plans = 2
	apply(t, s, plans+"tenants: [{id: other, plan: paid, billing: {zone: UTC}}, {id: below, plan: free, parent: other, billing: {pays: parent}}]\n")
	_, err = s.CloseStatement(t.Context(), "ann", drafted, nil)
	is(t, "one made before another came that it pays for", err, policystore.ErrConflict)
	drafted.Plans, drafted.Period.To = 1, 2000 // for the other it pays since that began
	must[terms.Closed](t)(s.CloseStatement(t.Context(), "ann", drafted, nil))
	// The periods that follow must go on where these end.
	_, err = s.Apply(t.Context(), "ann", parse(t, plans+"tenants: [{id: acme, plan: free, billing: {period: anniversary}}]\n"), 0, false)
	is(t, "another billing after a statement", err, policystore.ErrInvalid)
	apply(t, s, plans+"tenants: [{id: third, plan: free, billing: {zone: UTC}}]\n")
	apply(t, s, plans+"tenants: [{id: third, plan: free, billing: {period: anniversary}}]\n")
}
