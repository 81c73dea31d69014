package statements

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const membersPolicy = `plans:
  free: {limits: [{name: requests, rate: 100/hour, meter: requests}]}
  paid:
    limits: [{name: requests, rate: 1000/hour, meter: requests}]
    price: {monthly: 31.00 USD, meters: {requests: {included: 10, tiers: [{up_to: 1000, unit: 0.05}, {unit: 0.01}]}}}
tenants:
  - {id: acme, plan: paid, billing: {zone: Asia/Kolkata}}
  - {id: acme/shop, plan: paid, parent: acme, billing: {pays: parent}}
  - {id: acme/shop/eu, plan: paid, parent: acme/shop, billing: {pays: parent}}
  - {id: acme/own, plan: paid, parent: acme}
`

func (b *billed) preview(tenant, period string) *billing.Statement {
	b.T.Helper()
	s, err := b.s.PreviewStatement(servertest.AsAnn(b.T.Context()), &quotav1.PreviewStatementRequest{Tenant: tenant, Period: period})
	if err != nil {
		b.T.Fatal(err)
	}
	out := new(billing.Statement)
	if err := json.Unmarshal([]byte(s.Statement.Document), out); err != nil {
		b.T.Fatal(err)
	}
	return out
}

// sum is what the lines of a tenant come to, of a service period; empty for the statement's own.
func sum(s *billing.Statement, tenant, period string) (n int64) {
	for _, l := range s.Lines {
		if l.Tenant == tenant && l.Period == period {
			n += l.Amount
		}
	}
	return n
}

// A tenant whose parent pays is on its parent's statement, by its own plan and tiers, in its parent's
// periods, late usage included; it has none itself. Who pays may change after a statement, from the next slot on.
func TestParentPays(t *testing.T) { servertest.OnEngines(t, testParentPays) }

func testParentPays(t *testing.T, on servertest.Engine) {
	b := newBilledOn(t, on)
	if err := b.ApplyText(membersPolicy); err != nil {
		t.Fatal(err)
	}
	begin := b.At
	b.At = begin.AddDate(0, 0, 20)
	slot := begin.AddDate(0, 0, 3)
	for tenant, units := range map[string]int64{"acme": 110, "acme/shop": 2010, "acme/shop/eu": 30, "acme/own": 5000} {
		b.Of(tenant, slot, units)
	}
	s := b.preview("acme", "2026-10")
	// Of October in Kolkata, which began 5.5 hours before the tenants: the fee's share, and included units' rounded up.
	fee := int64(3100)
	for tenant, usage := range map[string]int64{"": 500, "acme/shop": 990*5 + 1010, "acme/shop/eu": 100} {
		if got := sum(s, tenant, "") - usage; got > fee || got < fee-50 {
			t.Errorf("%q comes to %d beside its usage, want a fee of some %d", tenant, got, fee)
		}
	}
	if got := sum(s, "acme/own", ""); got != 0 {
		t.Errorf("who pays for itself is on it: %d", got)
	}
	total := int64(0)
	for _, l := range s.Lines {
		total += l.Amount
	}
	if len(s.Totals) != 1 || s.Totals[0].Total != total {
		t.Errorf("totals %+v, lines %d", s.Totals, total)
	}
	if len(s.Days) != 1 || s.Days[0].Admitted != 110+2010+30 {
		t.Errorf("days %+v", s.Days)
	}
	if _, err := b.s.PreviewStatement(t.Context(), &quotav1.PreviewStatementRequest{Tenant: "acme/shop"}); !errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), "its parent acme pays") {
		t.Errorf("a statement of who does not pay: %v", err)
	}

	for _, tenant := range []string{"acme", "acme/shop/eu"} { // a plan that is to change at the period's end changes at its payer's
		if p, err := b.s.PeriodAt(t.Context(), tenant, b.At); err != nil || time.Unix(p.To, 0).UTC() != time.Date(2026, 10, 31, 18, 30, 0, 0, time.UTC) {
			t.Errorf("the period of %s is %+v, %v, want October in Kolkata", tenant, p, err)
		}
	}

	b.At = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	late := begin.AddDate(0, 0, 21)
	shop := func(units, through int64, seq int64) {
		t.Helper()
		rows := []ledger.Row{{Slot: slot.Unix(), Tenant: "acme/shop", Limit: "requests", Meter: "requests", Version: 2, Admitted: units}}
		r := ledger.NewReport("gw-shop", 1, seq, seq-1, rows, through, false)
		if receipts, err := b.Ledger.Settle(t.Context(), []ledger.Report{r}); err != nil || receipts[0].Status != ledger.Settled {
			t.Fatalf("settle: %+v, %v", receipts, err)
		}
		if _, _, err := b.Ledger.Fold(t.Context(), b.At); err != nil {
			t.Fatal(err)
		}
	}
	shop(1, late.UnixMilli(), 1)
	b.At = b.At.Add(time.Hour)                    // from now on it matters to whom it settled usage of alone
	b.Of("acme/own", b.At.Add(-5*time.Minute), 1) // all else is complete until now
	if got := sum(b.preview("acme", "2026-10"), "acme/shop", ""); got != sum(s, "acme/shop", "")+1 {
		t.Errorf("one unit more of the second tier comes to %d, and all before to %d", got, sum(s, "acme/shop", ""))
	}
	_, err := b.s.CloseStatement(servertest.AsAnn(t.Context()), &quotav1.CloseStatementRequest{Tenant: "acme"})
	b.refused("while an agent of one that is paid for lags", err, "it is through "+late.UTC().Format(time.RFC3339)+", held back by gw-shop")
	shop(1, b.At.UnixMilli(), 2)
	var closed *quotav1.CloseDueResponse
	closed, err = b.s.CloseDue(servertest.AsAnn(t.Context()), &quotav1.CloseDueRequest{})
	if err != nil || len(closed.Closed) != 2 || len(closed.Refused) != 0 {
		t.Fatalf("closed %+v, %v", closed, err)
	}
	b.Of("acme/shop", slot, 100) // late
	if got := sum(b.preview("acme", "2026-11"), "acme/shop", "2026-10"); got != 100 {
		t.Errorf("late usage of a member: %d, want 100 units in the second tier", got)
	}
	if got := sum(b.preview("acme", "2026-11"), "", "2026-10"); got != 0 {
		t.Errorf("late usage of a member is the payer's: %d", got)
	}
	for what, c := range map[string]struct{ text, says string }{
		"to itself":      {strings.Replace(membersPolicy, "parent: acme, billing: {pays: parent}}", "parent: acme}", 1), "tenant acme/shop: paid by itself from 2026-11-03T01:00:00Z"},
		"to its parent":  {strings.Replace(membersPolicy, "{id: acme/own, plan: paid, parent: acme}", "{id: acme/own, plan: paid, parent: acme, billing: {pays: parent}}", 1), "tenant acme/own: paid by acme from 2026-11-03T01:00:00Z"},
		"to another one": {strings.Replace(membersPolicy, "parent: acme/shop, billing", "parent: acme/own, billing", 1), "tenant acme/shop/eu: paid by acme/own from 2026-11-03T01:00:00Z"},
	} {
		doc, err := policy.Parse("quota.yaml", []byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		done, err := b.Policy.Apply(t.Context(), "ann", doc, 0, true)
		if err != nil || !slices.Contains(done.Changes, c.says) {
			t.Errorf("who pays changes %s: %v, %v; want %q", what, done.Changes, err, c.says)
		}
	}
	// A new one may come.
	if err := b.ApplyText(membersPolicy + "  - {id: acme/new, plan: paid, parent: acme, billing: {pays: parent}}\n"); err != nil {
		t.Errorf("a new member: %v", err)
	}
	for what, text := range map[string]string{
		"no parent":               "  - {id: lone, plan: paid, billing: {pays: parent}}\n",
		"since when, and not who": "  - {id: lone, plan: paid, parent: acme, billing: {from: 2026-12-01}}\n",
		"who else":                "  - {id: lone, plan: paid, parent: acme, billing: {pays: bank}}\n",
	} {
		if err := b.ApplyText(membersPolicy + text); err == nil {
			t.Errorf("%s: it was applied", what)
		}
	}
}

// A statement is of one block, though others are sealed while its tenants are read.
func TestMembersAreOfOneBlock(t *testing.T) {
	b := newBilled(t)
	if err := b.ApplyText(membersPolicy); err != nil {
		t.Fatal(err)
	}
	slot := b.At.AddDate(0, 0, 3)
	b.At = b.At.AddDate(0, 0, 4)
	b.Of("acme", slot, 100)
	b.Of("acme/shop/eu", slot, 100)
	whole := b.Books
	sealed := 0
	b.s.books = readBooks{whole, func(tenant string) {
		if tenant == "acme/shop/eu" && sealed < 2 { // its payer was read just before
			sealed++
			b.Of("acme", slot, 100)
			b.Of("acme/shop/eu", slot, 100)
		}
	}}
	got := b.preview("acme", "2026-10")
	b.s.books = whole
	_, digest, err := got.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := b.preview("acme", "2026-10")
	if _, d, err := want.Encode(); err != nil || d != digest || sealed != 2 {
		t.Errorf("while %d blocks came: %+v\nof the last of them: %+v, %v", 2*sealed, got, want, err)
	}
}

// readBooks calls before with each tenant whose usage is read.
type readBooks struct {
	ledger.Books
	before func(tenant string)
}

func (r readBooks) Sealed(ctx context.Context, q ledger.SealedQuery) (ledger.SealedSums, error) {
	r.before(q.Tenant)
	return r.Books.Sealed(ctx, q)
}

// A ledger that lost the block that a statement was made at, or has another in its place, is told from the one
// that it was: neither preview nor close goes on from it.
func TestStatementsKnowTheirLedger(t *testing.T) {
	servertest.OnEngines(t, testStatementsKnowTheirLedger)
}

func testStatementsKnowTheirLedger(t *testing.T, on servertest.Engine) {
	b := newBilledOn(t, on)
	slot := b.At
	b.At = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	b.Settle("gw", slot, 5, b.At)
	if _, err := b.close("", ""); err != nil {
		t.Fatal(err)
	}
	b.At = time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC)
	b.Settle("gw", time.Date(2026, 11, 9, 0, 0, 0, 0, time.UTC), 7, b.At)
	if _, err := b.s.PreviewStatement(t.Context(), &quotav1.PreviewStatementRequest{Tenant: "acme", Period: "2026-11"}); err != nil {
		t.Fatal(err)
	}
	whole := b.Books
	for what, books := range map[string]ledger.Books{"another block of that height": otherLedger{whole}, "none of that height": shorterLedger{whole}} {
		b.s.books = books
		_, err := b.s.PreviewStatement(t.Context(), &quotav1.PreviewStatementRequest{Tenant: "acme", Period: "2026-11"})
		b.refused("a preview with "+what, err, "is not the one that it was")
		_, err = b.close("", "because")
		b.refused("a close with "+what, err, "is not the one that it was")
	}
	b.s.books = whole
	if _, err := b.close("", ""); err != nil {
		t.Errorf("of the ledger that it is: %v", err)
	}
}

// otherLedger has other blocks of the same heights.
type otherLedger struct{ ledger.Books }

func (o otherLedger) Block(ctx context.Context, height int64) (ledger.KeptBlockInfo, error) {
	b, err := o.Books.Block(ctx, height)
	b.Hash[7]++
	return b, err
}

// shorterLedger has lost all blocks from any height on that is asked for.
type shorterLedger struct{ ledger.Books }

func (s shorterLedger) Block(context.Context, int64) (ledger.KeptBlockInfo, error) {
	return ledger.KeptBlockInfo{}, ledger.ErrNotFound
}

// Past periods are priced as they are billed: of who pays, with all that it pays for; each of these by its own plan,
// which another plan is tried in the place of, alone where it alone is asked for.
func TestSimulateWhoPays(t *testing.T) {
	b := newBilled(t)
	if err := b.ApplyText(membersPolicy); err != nil {
		t.Fatal(err)
	}
	slot := b.At.AddDate(0, 0, 3)
	b.At = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	for tenant, units := range map[string]int64{"acme": 110, "acme/shop": 2010, "acme/shop/eu": 30, "acme/own": 500} {
		b.Of(tenant, slot, units)
	}
	b.Of("acme/shop", b.At.AddDate(0, 0, -2), 1_000_000) // of November, which has not ended
	charges := func(tenant string) (n int64) {
		t.Helper()
		for _, total := range b.preview(tenant, "2026-10").Totals {
			n += total.Charges
		}
		return n
	}
	acme, own := charges("acme"), charges("acme/own")
	of := map[string]int64{}
	for _, l := range b.preview("acme", "2026-10").Lines {
		of[l.Tenant] += l.Amount
	}
	type row struct{ was, wouldBe int64 }
	simulate := func(req *quotav1.SimulateRequest) map[string]row {
		t.Helper()
		resp, err := b.s.Simulate(servertest.AsAnn(t.Context()), req)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]row{}
		for _, p := range resp.Periods {
			if _, twice := all[p.Tenant]; twice || p.Period != "2026-10" || p.Currency != "USD" {
				t.Errorf("%+v: %v", req, p)
			}
			all[p.Tenant] = row{p.Was, p.WouldBe}
		}
		return all
	}
	// At 0.10 where it was 0.05, which is what October's units cost but for 1,010 of acme/shop.
	dearer := strings.Replace(membersPolicy, "unit: 0.05", "unit: 0.10", 1)
	more := int64(5 * (100 + 990 + 20))
	for _, c := range []struct {
		what string
		req  *quotav1.SimulateRequest
		want map[string]row
	}{
		{"other prices", &quotav1.SimulateRequest{Document: dearer}, map[string]row{"acme": {acme, acme + more}, "acme/own": {own, own + 5*490}}},
		{"another plan for all", &quotav1.SimulateRequest{Plan: "free"}, map[string]row{"acme": {acme, 0}, "acme/own": {own, 0}}},
		{"another plan for who pays alone", &quotav1.SimulateRequest{Tenant: "acme", Plan: "free"}, map[string]row{"acme": {acme, acme - of[""]}}},
		{"another plan for one that is paid for", &quotav1.SimulateRequest{Tenant: "acme/shop", Plan: "free"}, map[string]row{"acme": {acme, acme - of["acme/shop"]}}},
		{"for one that is paid for above its parent", &quotav1.SimulateRequest{Tenant: "acme/shop/eu", Plan: "free"}, map[string]row{"acme": {acme, acme - of["acme/shop/eu"]}}},
		{"for one that pays for itself", &quotav1.SimulateRequest{Tenant: "acme/own", Plan: "free"}, map[string]row{"acme/own": {own, 0}}},
	} {
		if got := simulate(c.req); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
