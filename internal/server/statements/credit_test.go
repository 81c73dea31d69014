package statements

import (
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Credits pay statement after statement, by priority, within their rollover, until they
// are used up or voided: each unit of money once.
func TestStatementsUseCredits(t *testing.T) {
	b := newBilled(t)
	ctx := servertest.AsAnn(t.Context())
	if _, err := b.Policy.SetTenantPlan(t.Context(), "ann", "acme", "paid"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*quotav1.GiveCreditRequest{
		{Id: "later", Tenant: "acme", Amount: "40.00 USD", Priority: 2},
		{Id: "first", Tenant: "acme", Amount: "50.00 USD", Priority: 1, Rollover: "15.00 USD"},
	} {
		if _, err := b.s.GiveCredit(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	// One in another currency, from before such were refused.
	if _, err := b.Policy.GiveCredit(ctx, "ann", terms.Credit{ID: "euros", Tenant: "acme", Currency: "EUR", Amount: 900, Rollover: -1}); err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]*quotav1.GiveCreditRequest{
		"is not an amount of money": {Id: "x", Tenant: "acme", Amount: "50"}, "some of 5.00 USD": {Id: "x", Tenant: "acme", Amount: "5.00 USD", Rollover: "1.00 EUR"},
		"no plan costs EUR": {Id: "x", Tenant: "acme", Amount: "9.00 EUR"},
		"finer than":        {Id: "x", Tenant: "acme", Amount: "5.005 USD"},
	} {
		_, err := b.s.GiveCredit(ctx, bad)
		b.refused(what, err, what)
	}
	left := func() (text string) {
		t.Helper()
		list, err := b.s.ListCredits(ctx, &quotav1.ListCreditsRequest{Tenant: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.Credits {
			text += c.Id + " " + c.Left + ", "
		}
		return text
	}
	// 31.00 a month: 50 pay it, 4 of the 19 that are left are more than the rollover. Then 15
	// and 16 of the 40; then, the rest being void, 24 pay nothing.
	for i, want := range []struct{ total, left string }{
		{"0.00 USD", "euros 9.00 EUR, first 15.00 USD, later 40.00 USD, "}, {"0.00 USD", "euros 9.00 EUR, first 0.00 USD, later 24.00 USD, "}, {"31.00 USD", "euros 9.00 EUR, first 0.00 USD, later 0.00 USD, "},
	} {
		b.At = time.Date(2026, 11+time.Month(i), 1, 0, 5, 0, 0, time.UTC)
		if i == 2 {
			b.At = b.At.Add(-time.Hour)
			if _, err := b.s.VoidCredit(ctx, &quotav1.VoidCreditRequest{Id: "later", Reason: "a mistake"}); err != nil {
				t.Fatal(err)
			}
			b.At = b.At.Add(time.Hour)
		}
		b.Settle("gw", b.At, 0, b.At)
		// Credits are in the next statement alone: one of a later period, which is under way, has none.
		later, err := b.s.PreviewStatement(t.Context(), &quotav1.PreviewStatementRequest{Tenant: "acme"})
		if err != nil || strings.Contains(later.Statement.Document, `"kind":"credit"`) || !strings.Contains(later.Statement.Document, `"credits":[]`) {
			t.Errorf("a preview of %s, before %s was closed: %v, %v; want no credits", b.At.Format("2006-01"), b.At.AddDate(0, -1, 0).Format("2006-01"), later.GetStatement(), err)
		}
		got, err := b.close("", "")
		if err != nil {
			t.Fatal(err)
		}
		s, err := billing.Decode([]byte(got.Document), got.Digest)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, total := range got.Totals {
			if total.Currency == "USD" {
				text = total.Text
			}
		}
		if text != want.total || left() != want.left {
			t.Errorf("%s: %s, left %s; want %s, %s", got.Period, text, left(), want.total, want.left)
		}
		again, err := b.close(got.Period, "")
		if err != nil || again.Digest != got.Digest || left() != want.left || i == 0 && !strings.Contains(s.Lines[len(s.Lines)-1].What(), "paid by credit first") {
			t.Errorf("%s again: %v, %v, left %s", got.Period, again, err, left())
		}
	}
}

// A credit that no statement would use is refused, and who pays instead is named: of a tenant whose parent pays for it,
// and of a deleted one. One that pays for a member, or pays itself again some day, may have one.
func TestCreditsOfWhoPaysNothing(t *testing.T) { servertest.OnEngines(t, testCreditsOfWhoPaysNothing) }

func testCreditsOfWhoPaysNothing(t *testing.T, on servertest.Engine) {
	b := newBilledOn(t, on)
	apply := func(shop string) {
		t.Helper()
		if err := b.ApplyText(alonePolicy + "  - {id: acme, plan: paid}\n  - {id: org, plan: paid}\n  - {id: team, plan: paid, parent: org, billing: {pays: parent}}\n  - {id: shop, plan: paid, parent: team, billing: {pays: " + shop + "}}\n"); err != nil {
			t.Fatal(err)
		}
	}
	give := func(id, tenant string) error {
		_, err := b.s.GiveCredit(servertest.AsAnn(t.Context()), &quotav1.GiveCreditRequest{Id: id, Tenant: tenant, Amount: "5.00 USD"})
		return err
	}
	accepted := func(id, tenant string) {
		t.Helper()
		if err := give(id, tenant); err != nil {
			t.Errorf("%s of %s: %v", id, tenant, err)
		}
	}
	apply("self")
	accepted("own", "shop")
	b.refused("of a member", give("member", "team"), "its parent pays for tenant team, whose usage is on org's statements: give the credit to org")
	b.At = time.Date(2026, 10, 12, 0, 0, 0, 0, time.UTC)
	apply("parent")           // and the parent's parent
	accepted("begun", "shop") // this period is its own until now
	b.At = time.Date(2026, 11, 12, 0, 0, 0, 0, time.UTC)
	b.refused("of one that left its own", give("left", "shop"), "give the credit to org")
	accepted("own", "shop") // again, whatever has become of it
	apply("self, from: 2026-12-20")
	accepted("back", "shop")
	accepted("payer", "org")

	if _, err := b.Policy.CreateTenant(t.Context(), "ann", "gone", "paid", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Policy.CloseTenant(t.Context(), "ann", "gone"); err != nil {
		t.Fatal(err)
	}
	accepted("last", "gone") // its last period has not ended
	b.At = time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC)
	b.refused("of a deleted one", give("late", "gone"), "tenant gone was deleted at 2026-11-12T00:00:01Z, and would never use a credit")
	accepted("last", "gone")
}
