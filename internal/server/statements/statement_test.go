package statements

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// billed is a statement service over stores.
type billed struct {
	*servertest.Stores
	s *Service
}

func newBilled(t *testing.T) *billed {
	t.Helper()
	return newBilledOn(t, servertest.OnSQLite)
}

func newBilledOn(t *testing.T, on servertest.Engine) *billed {
	t.Helper()
	b := &billed{Stores: servertest.NewStores(t, on)}
	b.s = &Service{books: b.Books, policy: b.Policy, prices: newPrices(b.Policy), now: b.Now}
	return b
}

func (b *billed) close(period, reason string) (*quotav1.Statement, error) {
	resp, err := b.s.CloseStatement(servertest.AsAnn(b.T.Context()), &quotav1.CloseStatementRequest{Tenant: "acme", Period: period, ForceReason: reason})
	return resp.GetStatement(), err
}

// refused wants an error that says why, and no further statement.
func (b *billed) refused(what string, err error, says string) {
	b.T.Helper()
	if !errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), says) {
		b.T.Errorf("%s: %v, want a refusal that says %q", what, err, says)
	}
}

// A quarter of a tenant: it changes its plan, an agent lags, units come late.
func TestStatements(t *testing.T) {
	b := newBilled(t)
	b.Settle("gw-1", b.At, 500, b.At)
	b.At = time.Date(2026, 10, 11, 0, 0, 0, 0, time.UTC)
	if _, err := b.Policy.SetTenantPlan(t.Context(), "ann", "acme", "paid"); err != nil {
		t.Fatal(err)
	}
	b.At = b.At.Add(36 * time.Hour)
	b.Settle("gw-1", b.At, 900, b.At)

	preview := func(period string) (*quotav1.Statement, error) {
		resp, err := b.s.PreviewStatement(t.Context(), &quotav1.PreviewStatementRequest{Tenant: "acme", Period: period})
		return resp.GetStatement(), err
	}
	october := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	p, err := preview("")
	// 21 of 31 days of the fee, and 900 units at 0.05: those of the free plan cost nothing.
	if err != nil || p.Period != "2026-10" || len(p.Totals) != 1 || p.Totals[0].Text != "66.00 USD" || p.Height != 2 {
		t.Fatalf("preview: %v, %v", p, err)
	}
	_, err = b.close("", "")
	b.refused("before its end", err, "has not ended")
	_, err = b.close("2026-09", "")
	b.refused("a period before the tenant", err, "period 2026-10 is closed next")

	b.At = october.Add(time.Hour)
	b.Settle("gw-2", october.Add(-2*time.Hour), 50, october.Add(-time.Hour))
	_, err = b.close("", "")
	b.refused("while an agent lags", err, "it is through 2026-10-31T23:00:00Z, held back by gw-2")
	if list, err := b.s.ListStatements(t.Context(), &quotav1.ListStatementsRequest{Tenant: "acme"}); err != nil || len(list.Statements) != 0 {
		t.Errorf("after refusals: %v, %v", list, err)
	}
	_, err = b.close("2026-11", "they are gone")
	b.refused("a period that has not ended, with a reason", err, "has not ended")
	first, err := b.close("", "gw-2 is gone")
	if err != nil || first.Number != 1 || first.Forced != "gw-2 is gone" || first.ClosedBy != "ann" || first.Totals[0].Text != "68.50 USD" || first.ClosedMs != b.At.UnixMilli() {
		t.Fatalf("close by force: %v, %v", first, err)
	}

	// gw-2 was not gone: 100 units more come late, of which 50 are above the first tier.
	b.At = b.At.Add(24 * time.Hour)
	b.Settle("gw-2", october.Add(-time.Hour), 100, b.At)
	again, err := b.close("2026-10", "")
	if err != nil || again.Digest != first.Digest || again.Document != first.Document || again.ClosedMs != first.ClosedMs {
		t.Errorf("closed again: %v, %v, want the same", again, err)
	}
	if _, err := preview("2026-10"); !errors.Is(err, fault.ErrExists) {
		t.Errorf("preview of a closed period: %v, want %v", err, fault.ErrExists)
	}
	b.Settle("gw-2", b.At, 10, b.At)
	b.At = time.Date(2026, 12, 1, 0, 30, 0, 0, time.UTC)
	b.Settle("gw-3", b.At, 0, b.At)
	december, err := preview("")
	if err != nil || december.Period != "2026-12" || strings.Contains(december.Document, `"period":"2026-10"`) {
		t.Errorf("a preview that is not the next statement: %v, %v, want no adjustments", december, err)
	}
	_, err = b.close("2026-12", "")
	b.refused("a period under way", err, "has not ended")
	second, err := b.close("", "")
	if err != nil || second.Period != "2026-11" || second.Number != 2 || second.Forced != "" {
		t.Fatalf("the second: %v, %v", second, err)
	}
	s, err := billing.Decode([]byte(second.Document), second.Digest)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, l := range s.Lines {
		got += l.What() + ": " + l.Money() + "\n"
	}
	want := "plan paid: 31.00 USD\nrequests: 10 units: 0.50 USD\nrequests: 100 units, for 2026-10: 3.00 USD\n"
	if got != want || s.Since != first.Height || second.Totals[0].Text != "34.50 USD" {
		t.Errorf("the second has, since %d, at %s:\n%swant\n%s", s.Since, second.Totals[0].Text, got, want)
	}
	// What was adjusted is not adjusted again.
	b.At = time.Date(2027, 1, 1, 1, 0, 0, 0, time.UTC)
	b.Settle("gw-3", b.At, 0, b.At)
	third, err := b.close("", "")
	if err != nil || third.Totals[0].Text != "31.00 USD" {
		t.Errorf("the third: %v, %v, want the fee alone", third, err)
	}
	list, err := b.s.ListStatements(t.Context(), &quotav1.ListStatementsRequest{Tenant: "acme", PageSize: 2})
	if err != nil || len(list.Statements) != 2 || list.Statements[0].Period != "2026-12" || list.Statements[1].Digest != second.Digest {
		t.Errorf("list: %v, %v", list, err)
	}
	if got, err := b.s.GetStatement(t.Context(), &quotav1.GetStatementRequest{Tenant: "acme", Period: "2026-11"}); err != nil || got.Statement.Document != second.Document {
		t.Errorf("show: %v, %v", got.GetStatement(), err)
	}
}

// A statement depends on the block that it is made at and on nothing else: whoever closes the same period of the
// same ledger at the same block, on either engine and however often, gets the same bytes, which a preview has as well.
func TestACloseAtOneBlockIsTheSame(t *testing.T) {
	digests := map[string]string{}
	for name, on := range map[string]servertest.Engine{"SQLite": servertest.OnSQLite, "SQLite anew": servertest.OnSQLite, "Postgres": servertest.OnPostgres} {
		t.Run(name, func(t *testing.T) {
			b := newBilledOn(t, on)
			b.Settle("gw-1", b.At, 500, b.At)
			b.At = time.Date(2026, 10, 11, 0, 0, 0, 0, time.UTC)
			if _, err := b.Policy.SetTenantPlan(t.Context(), "ann", "acme", "paid"); err != nil {
				t.Fatal(err)
			}
			if _, err := b.s.GiveCredit(servertest.AsAnn(t.Context()), &quotav1.GiveCreditRequest{Id: "welcome", Tenant: "acme", Amount: "20.00 USD"}); err != nil {
				t.Fatal(err)
			}
			b.At = b.At.Add(36 * time.Hour)
			b.Settle("gw-1", b.At, 900, b.At)
			b.Settle("gw-2", b.At.Add(-time.Hour), 333, b.At)
			b.At = time.Date(2026, 11, 1, 1, 0, 0, 0, time.UTC)
			b.Settle("gw-1", b.At, 7, b.At)
			b.Settle("gw-2", b.At, 0, b.At)
			first, err := b.s.PreviewStatement(t.Context(), &quotav1.PreviewStatementRequest{Tenant: "acme", Period: "2026-10"})
			if err != nil {
				t.Fatal(err)
			}
			b.At = b.At.Add(time.Hour) // at another time, at the same block
			for range 2 {
				closed, err := b.close("2026-10", "")
				if err != nil || closed.Digest != first.Statement.Digest || closed.Document != first.Statement.Document || closed.Height != first.Statement.Height {
					t.Errorf("closed %v, %v\nwant what was previewed, %v", closed, err, first.GetStatement())
				}
			}
			digests[first.Statement.Digest] = name
		})
	}
	if len(digests) != 1 {
		t.Errorf("the same ledger has the statements %v", digests)
	}
}

// What a shadow policy counted beside the one in force is on no statement.
func TestStatementsLeaveShadowsOut(t *testing.T) {
	b := newBilled(t)
	doc, err := policy.Parse("next.yaml", []byte(strings.ReplaceAll(servertest.PricedPolicy, "1000/hour", "5/hour")))
	if err != nil {
		t.Fatal(err)
	}
	if a, err := b.Policy.SetShadow(t.Context(), "ann", doc, false); err != nil || a.Version != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
	rows := []ledger.Row{{Slot: b.At.Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 2, Admitted: 7}}
	if _, err := b.Ledger.Settle(t.Context(), []ledger.Report{ledger.NewReport("gw", 1, 1, 0, rows, b.At.UnixMilli(), false)}); err != nil {
		t.Fatal(err)
	}
	b.Settle("gw-1", b.At, 5, b.At)
	p, err := b.s.PreviewStatement(t.Context(), &quotav1.PreviewStatementRequest{Tenant: "acme"})
	if err != nil || !strings.Contains(p.Statement.Document, `"admitted":5`) || strings.Contains(p.Statement.Document, `"admitted":12`) || strings.Contains(p.Statement.Document, `"admitted":7`) {
		t.Errorf("%v, %v, want 5 units", p.GetStatement(), err)
	}
}

// A tenant whose last statement ended elsewhere than its periods do now goes on where
// that one ended, and its periods have no gap.
func TestStatementsGoOnWhereTheLastEnded(t *testing.T) {
	for what, to := range map[string]time.Time{
		"before its periods turn": time.Date(2026, 10, 31, 15, 0, 0, 0, time.UTC),
		"after they turned":       time.Date(2026, 11, 1, 9, 0, 0, 0, time.UTC),
	} {
		b := newBilled(t)
		last := terms.Closed{Tenant: "acme", Number: 1, Period: billing.Period{Name: "2026-10", From: b.At.Unix(), To: to.Unix()}, Plans: 1}
		if _, err := b.Policy.CloseStatement(t.Context(), "ann", last, nil); err != nil {
			t.Fatal(err)
		}
		b.At = to.Add(time.Hour) // a month later its slot would be too old to be settled
		b.Settle("gw", to, 5, b.At)
		b.At = time.Date(2026, 12, 1, 1, 0, 0, 0, time.UTC)
		b.Settle("gw", b.At, 0, b.At)
		got, err := b.close("", "")
		if err != nil || got.Period != "2026-11" || got.FromMs != to.UnixMilli() || got.ToMs != time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).UnixMilli() {
			t.Errorf("%s: %v, %v, want 2026-11 from %s", what, got, err, to)
			continue
		}
		if named, err := b.close("2026-11", ""); err != nil || named.Digest != got.Digest {
			t.Errorf("%s, by name: %v, %v", what, named, err)
		}
	}
}

// A period is closed before anything was ever folded: what comes of it later is on the next statement all the same.
func TestLateUsageAfterAStatementOfNoBlock(t *testing.T) {
	b := newBilled(t)
	if _, err := b.Policy.SetTenantPlan(t.Context(), "ann", "acme", "paid"); err != nil {
		t.Fatal(err)
	}
	october := b.At.AddDate(0, 0, 3)
	b.At = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	b.Settle("idle", october, 0, b.At) // a sign of life, and no usage: no block is made of it
	if s, err := b.close("2026-10", ""); err != nil || s.Height != 0 || s.Forced != "" {
		t.Fatalf("closed without a block: %v, %v", s, err)
	}
	b.Settle("gw", october, 5000, b.At)
	b.At = time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC)
	b.Settle("gw", b.At.AddDate(0, 0, -20), 7, b.At)
	b.Settle("idle", october, 0, b.At)
	s, err := b.close("2026-11", "")
	if err != nil {
		t.Fatal(err)
	}
	var st billing.Statement
	if err := json.Unmarshal([]byte(s.Document), &st); err != nil {
		t.Fatal(err)
	}
	late := int64(0)
	for _, l := range st.Lines {
		if l.Period == "2026-10" {
			late += l.Units
		}
	}
	if late != 5000 {
		t.Errorf("November's statement has %d late units of October, want 5000: %+v", late, st.Lines)
	}
}
