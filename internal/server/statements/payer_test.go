package statements

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// closeDue closes what is due of all tenants, and returns what each statement comes to, by tenant and period.
func (b *billed) closeDue() map[string]int64 {
	b.T.Helper()
	resp, err := b.s.CloseDue(servertest.AsAnn(b.T.Context()), &quotav1.CloseDueRequest{})
	if err != nil || len(resp.Refused) > 0 {
		b.T.Fatalf("refused %v, %v", resp.GetRefused(), err)
	}
	all := make(map[string]int64)
	for _, s := range resp.Closed {
		all[s.Tenant+" "+s.Period] = 0
		for _, total := range s.Totals {
			all[s.Tenant+" "+s.Period] += total.Amount
		}
	}
	return all
}

const alonePolicy = `plans:
  paid:
    limits: [{name: requests, rate: 1000/hour, meter: requests}]
    price: {monthly: 31.00 USD, meters: {requests: {unit: 0.05}}}
tenants:
`

// A payer that came after its member's usage: January is the member's own, though it is closed when the other pays
// already. A member that leaves after statements were closed is on its payer's statement until then, and on its own
// from then on.
func TestWhoPaysChanges(t *testing.T) { servertest.OnEngines(t, testWhoPaysChanges) }

func testWhoPaysChanges(t *testing.T, on servertest.Engine) {
	b := newBilledOn(t, on)
	day := func(month time.Month, day int) time.Time { return time.Date(2027, month, day, 0, 0, 0, 0, time.UTC) }
	apply := func(tenants ...string) {
		t.Helper()
		if err := b.ApplyText(alonePolicy + "  - {id: acme, plan: paid}\n" + strings.Join(tenants, "\n") + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	b.At = day(1, 1)
	apply("  - {id: shop, plan: paid}")
	b.At = day(2, 11)
	b.Of("shop", day(1, 10), 2251) // 112.55, and 31.00: 143.55
	b.Of("shop", day(2, 2), 100)
	apply("  - {id: org, plan: paid}", "  - {id: shop, plan: paid, parent: org, billing: {pays: parent}}") // from the eleventh of February on
	b.Of("shop", day(2, 11).Add(-5*time.Minute), 10)
	b.Of("shop", day(2, 11), 1000)

	b.At = day(2, 20)
	b.Of("acme", day(2, 19), 0)
	got := b.closeDue()
	if n := got["shop 2027-01"]; n != 14355 {
		t.Errorf("January of the tenant that nobody else paid for yet: %d of %v, want 143.55", n, got)
	}
	if _, ok := got["org 2027-01"]; ok {
		t.Errorf("a statement of a payer of before it paid for any: %v", got)
	}

	b.At = day(3, 5)
	apply("  - {id: org, plan: paid}", "  - {id: shop, plan: paid, parent: org, billing: {pays: self, from: 2027-04-01}}") // from the next period on
	b.Of("shop", day(3, 4), 10)
	got = b.closeDue()
	fee := int64(3100 * 10 / 28) // of ten days
	if n, want := got["shop 2027-02"], fee+550; n != want {
		t.Errorf("February until its parent paid: %d, want %d", n, want)
	}
	rest := int64(3100*18/28 + 1) // each, rounded
	if n, want := got["org 2027-02"], rest+rest+5000; n < want-2 || n > want {
		t.Errorf("February since then: %d, want %d", n, want)
	}

	list, err := b.admin().ListPayers(servertest.AsAnn(t.Context()), &quotav1.ListPayersRequest{Tenant: "shop"})
	said := ""
	for _, p := range list.GetPayers() {
		said += fmt.Sprintf("%s %s %v, ", p.Payer, time.UnixMilli(p.FromMs).UTC().Format(time.DateOnly), p.Scheduled)
	}
	if err != nil || said != "shop 1970-01-01 false, org 2027-02-11 false, shop 2027-04-01 true, " {
		t.Errorf("who pays: %s, %v", said, err)
	}
	b.Of("shop", day(1, 20), 20) // late, and January was its own
	b.Of("shop", day(2, 12), 40) // late, and was the other's
	b.At = day(5, 2)
	b.Of("shop", day(4, 1), 200)
	b.Of("shop", day(3, 30), 60)
	got = b.closeDue()
	s := b.closed("org", "2027-03")
	if n := sum(s, "shop", "2027-02"); n != 200 {
		t.Errorf("late usage of February since another paid: %d, want 2.00 on its statement of March", n)
	}
	if n := sum(b.closed("shop", "2027-03"), "", "2027-01"); n != 100 {
		t.Errorf("late usage of January: %d, want 1.00 on its own statement", n)
	}
	if n := got["org 2027-04"]; n != 3100 {
		t.Errorf("April of who paid before: %d, want its own fee", n)
	}
	if n := got["shop 2027-04"]; n != 3100+1000 {
		t.Errorf("April of the tenant that left with March: %d, want 41.00", n)
	}
	if n := sum(s, "shop", ""); n != 3100+5*(60+10) {
		t.Errorf("March: %d, want all of it on the other's statement", n)
	}

	// Late usage of a member that has left: it is on the next statement of who paid for it then.
	b.Of("shop", day(3, 20), 80)
	b.At = day(6, 2)
	b.Of("shop", day(6, 1), 0)
	b.closeDue()
	if n := sum(b.closed("org", "2027-05"), "shop", "2027-03"); n != 400 {
		t.Errorf("late usage of a member that has left: %d, want 4.00", n)
	}
	if n := sum(b.closed("shop", "2027-05"), "", "2027-03"); n != 0 {
		t.Errorf("and %d on its own statement", n)
	}
}

func (b *billed) closed(tenant, period string) *billing.Statement {
	b.T.Helper()
	got, err := b.s.GetStatement(b.T.Context(), &quotav1.GetStatementRequest{Tenant: tenant, Period: period})
	if err != nil {
		b.T.Fatal(err)
	}
	s, err := billing.Decode([]byte(got.Statement.Document), got.Statement.Digest)
	if err != nil {
		b.T.Fatal(err)
	}
	return s
}
