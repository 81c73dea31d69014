package statements

import (
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// resolve releases what may be released out of quarantine, or discards all of it, and folds.
func (b *billed) resolve(discard bool) {
	b.T.Helper()
	kept, err := b.Books.Quarantine(b.T.Context(), ledger.QuarantineQuery{N: 1000})
	if err != nil {
		b.T.Fatal(err)
	}
	if len(kept) == 0 {
		return
	}
	var ids []int64
	for i := range kept {
		ids = append(ids, kept[i].ID)
	}
	if discard {
		err = b.Books.Discard(b.T.Context(), "ann", "nobody's", ids)
	} else {
		_, err = b.Books.Retry(b.T.Context(), "ann", "the clock was ahead", ids)
	}
	if err != nil {
		b.T.Fatal(err)
	}
	if _, _, err := b.Ledger.Fold(b.T.Context(), b.At); err != nil {
		b.T.Fatal(err)
	}
}

// A period is not closed while usage of it is in quarantine, unless somebody says why; then the statement says so. What
// is released afterwards is late usage, and what is discarded is on no statement.
func TestPeriodsWithQuarantine(t *testing.T) { servertest.OnEngines(t, testPeriodsWithQuarantine) }

func testPeriodsWithQuarantine(t *testing.T, on servertest.Engine) {
	b := newBilledOn(t, on)
	if err := b.ApplyText(strings.Replace(servertest.PricedPolicy, "plan: free}", "plan: paid}", 1)); err != nil {
		t.Fatal(err)
	}
	day := func(month time.Month, n int) time.Time { return time.Date(2026, month, n, 0, 0, 0, 0, time.UTC) }
	b.At = day(10, 5)
	b.Settle("gw", day(10, 20), 700, b.At) // its clock is ahead, so that these are kept aside
	b.Settle("gw", day(11, 2), 500, b.At)
	b.At = day(11, 1).Add(time.Hour)
	b.Settle("gw", day(10, 4), 100, b.At)

	p, err := b.s.PreviewStatement(t.Context(), &quotav1.PreviewStatementRequest{Tenant: "acme", Period: "2026-10"})
	if err != nil || p.Statement.QuarantinedRows != 1 || p.Statement.QuarantinedUnits != 700 {
		t.Fatalf("preview: %v, %v, want 1 row with 700 units in quarantine", p.GetStatement(), err)
	}
	_, err = b.close("", "")
	b.refused("with a row in quarantine", err, "is in quarantine: 1 rows of tenant acme with 700 units; release or discard it, or close it with a reason")
	due, err := b.s.CloseDue(servertest.AsAnn(t.Context()), &quotav1.CloseDueRequest{})
	if err != nil || len(due.Closed) != 0 || len(due.Refused) != 1 || !strings.Contains(due.Refused[0].Reason, "is in quarantine") {
		t.Errorf("close-due: %v, %v, want it refused", due, err)
	}
	if list, err := b.Policy.Statements(t.Context(), "acme", 0, 10); err != nil || len(list) != 0 {
		t.Errorf("after refusals: %v, %v", list, err)
	}
	first, err := b.close("", "the gateway's clock was wrong")
	if err != nil || first.Forced != "the gateway's clock was wrong" || first.QuarantinedRows != 1 || first.QuarantinedUnits != 700 ||
		!strings.Contains(first.Document, `"quarantined":{"rows":1,"units":700}`) || first.Totals[0].Text != "36.00 USD" {
		t.Fatalf("closed by force: %v, %v", first, err)
	}

	b.At = day(12, 1).Add(time.Hour)
	b.Settle("gw", day(11, 3), 0, b.At)
	_, err = b.close("", "")
	b.refused("with rows of this period and the one before", err, "2 rows of tenant acme with 1200 units")
	kept, err := b.Books.Quarantine(t.Context(), ledger.QuarantineQuery{N: 10})
	if err != nil || len(kept) != 2 {
		t.Fatalf("%v, %v", kept, err)
	}
	if err := b.Books.Discard(t.Context(), "ann", "another's", []int64{kept[1].ID}); err != nil {
		t.Fatal(err)
	}
	b.resolve(false)
	second, err := b.close("", "")
	// 700 units at 0.05 more for October; the 500 of November are on no statement.
	if err != nil || second.Forced != "" || second.QuarantinedRows != 0 || strings.Contains(second.Document, "quarantined") || second.Totals[0].Text != "66.00 USD" {
		t.Fatalf("the next one: %v, %v", second, err)
	}
}

// A row in quarantine holds back whoever pays for its slot, and nobody else: a member that has left is not held back by
// what its parent paid for, nor its parent by what is its own again.
func TestQuarantineHoldsWhoPaysForItsSlot(t *testing.T) {
	servertest.OnEngines(t, testQuarantineHoldsWhoPaysForItsSlot)
}

func testQuarantineHoldsWhoPaysForItsSlot(t *testing.T, on servertest.Engine) {
	b := newBilledOn(t, on)
	apply := func(pays string) {
		t.Helper()
		if err := b.ApplyText(strings.Replace(servertest.PricedPolicy, "tenants: [{id: acme, plan: free}]",
			"tenants: [{id: org, plan: paid}, {id: acme, plan: paid, parent: org, billing: {pays: "+pays+"}}]", 1)); err != nil {
			t.Fatal(err)
		}
	}
	day := func(month time.Month, n int) time.Time { return time.Date(2026, month, n, 0, 0, 0, 0, time.UTC) }
	apply("parent")
	b.Settle("gw", day(10, 7), 700, b.At) // its clock is ahead
	b.At = day(10, 16)
	apply("self")
	b.At = day(11, 1).Add(time.Hour)
	b.Settle("gw", b.At, 0, b.At)
	closing := func(tenant string) error {
		_, err := b.s.CloseStatement(servertest.AsAnn(t.Context()), &quotav1.CloseStatementRequest{Tenant: tenant})
		return err
	}
	b.refused("of who paid for the slot", closing("org"), "1 rows of tenant acme with 700 units")
	if err := closing("acme"); err != nil {
		t.Errorf("of the tenant, which did not: %v", err)
	}
	b.resolve(false)
	if err := closing("org"); err != nil {
		t.Errorf("once it is released: %v", err)
	}
	if n := sum(b.closed("org", "2026-10"), "acme", ""); n < 700*5 {
		t.Errorf("acme is %d on its payer's statement, want the 700 units there", n)
	}
	b.Settle("gw", day(11, 20), 900, b.At) // its own by now
	b.At = day(12, 1).Add(time.Hour)
	b.Settle("gw", b.At, 0, b.At)
	b.refused("of a tenant that left", closing("acme"), "1 rows of tenant acme with 900 units")
	if err := closing("org"); err != nil {
		t.Errorf("of who paid for it before: %v", err)
	}
}

// A tenant that is to be paid for by another from the period's end on still waits for its own.
func TestQuarantineOfATenantThatLeavesAtThePeriodsEnd(t *testing.T) {
	b := newBilled(t)
	tree := func(pays string) string {
		return strings.Replace(servertest.PricedPolicy, "tenants: [{id: acme, plan: free}]",
			"tenants: [{id: org, plan: paid}, {id: acme, plan: paid, parent: org, billing: {pays: "+pays+"}}]", 1)
	}
	if err := b.ApplyText(tree("self")); err != nil {
		t.Fatal(err)
	}
	b.Settle("gw", time.Date(2026, 10, 7, 0, 0, 0, 0, time.UTC), 700, b.At) // its clock is ahead
	b.At = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	if err := b.ApplyText(tree("parent")); err != nil {
		t.Fatal(err)
	}
	b.At = b.At.Add(time.Hour)
	b.Settle("gw", b.At, 0, b.At)
	_, err := b.s.CloseStatement(servertest.AsAnn(t.Context()), &quotav1.CloseStatementRequest{Tenant: "acme"})
	b.refused("of a tenant that left at the edge", err, "1 rows of tenant acme with 700 units")
}

// Whoever pays for a tenant waits for what is in quarantine of it.
func TestPayersWaitForQuarantineOfMembers(t *testing.T) {
	b := newBilled(t)
	if err := b.ApplyText(strings.Replace(servertest.PricedPolicy, "tenants: [{id: acme, plan: free}]",
		"tenants: [{id: org, plan: paid}, {id: other, plan: paid}, {id: acme, plan: paid, parent: org, billing: {pays: parent}}]", 1)); err != nil {
		t.Fatal(err)
	}
	b.Settle("gw", time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC), 700, b.At)
	b.At = time.Date(2026, 11, 1, 1, 0, 0, 0, time.UTC)
	b.Settle("gw", b.At, 0, b.At)
	_, err := b.s.CloseStatement(servertest.AsAnn(t.Context()), &quotav1.CloseStatementRequest{Tenant: "org"})
	b.refused("of whoever pays", err, "1 rows of tenant acme with 700 units")
	if _, err := b.s.CloseStatement(servertest.AsAnn(t.Context()), &quotav1.CloseStatementRequest{Tenant: "other"}); err != nil {
		t.Errorf("of another: %v", err)
	}
	paid, err := b.s.CloseStatement(servertest.AsAnn(t.Context()), &quotav1.CloseStatementRequest{Tenant: "org", ForceReason: "r"})
	if err != nil || paid.Statement.QuarantinedUnits != 700 {
		t.Errorf("by force: %v, %v", paid.GetStatement(), err)
	}
}
