package statements

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// correct takes units of acme away, or adds them, in the slot that begins at a time.
func (b *billed) correct(key string, slot time.Time, units int64) {
	b.T.Helper()
	row := ledger.Row{Slot: slot.Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Admitted: max(units, -units)}
	c, err := ledger.NewCorrection(ledger.KindAdjust, key, units < 0, []ledger.Row{row}, "a test")
	if err != nil {
		b.T.Fatal(err)
	}
	if _, err := b.Books.Correct(b.T.Context(), "ann", c); err != nil {
		b.T.Fatal(err)
	}
	if _, _, err := b.Ledger.Fold(b.T.Context(), b.At); err != nil {
		b.T.Fatal(err)
	}
}

// A month that comes to less than nothing is charged as nothing. What is below zero pays for the months after it,
// before any other credit, until it is used up: also where all of them are closed at once, long afterwards.
func TestNegativeTotalIsCarried(t *testing.T) { servertest.OnEngines(t, testNegativeTotalIsCarried) }

func testNegativeTotalIsCarried(t *testing.T, on servertest.Engine) {
	for what, late := range map[string]bool{"closed month by month": false, "closed at once": true} {
		t.Run(what, func(t *testing.T) {
			b := newBilledOn(t, on)
			if _, err := b.Policy.SetTenantPlan(t.Context(), "ann", "acme", "paid"); err != nil {
				t.Fatal(err)
			}
			october := b.At.Add(time.Hour)
			b.At = time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
			b.Settle("gw", october, 2000, b.At) // 31.00 + 50.00 + 10.00
			if got, err := b.close("2026-10", ""); err != nil || got.Totals[0].Amount != 9100 {
				t.Fatalf("October: %v, %v", got, err)
			}
			b.correct("none of it", october, -2000) // 60.00 less for October
			b.correct("some more", b.At, 100)       // November: 31.00 + 5.00
			if _, err := b.s.GiveCredit(servertest.AsAnn(t.Context()), &quotav1.GiveCreditRequest{Id: "gift", Tenant: "acme", Amount: "10.00 USD", Priority: -1_000_000}); err != nil {
				t.Fatal(err)
			}
			credits := func() map[string]string {
				t.Helper()
				list, err := b.s.ListCredits(servertest.AsAnn(t.Context()), &quotav1.ListCreditsRequest{Tenant: "acme"})
				if err != nil {
					t.Fatal(err)
				}
				left := map[string]string{}
				for _, c := range list.Credits {
					left[c.Id] = c.Left
				}
				return left
			}
			if late {
				b.At = time.Date(2027, 2, 2, 0, 0, 0, 0, time.UTC)
			}
			// November is 36.00 − 60.00 of October: 24.00 are owed to acme. December's 31.00 and January's are what is
			// left to charge.
			for i, want := range []int64{0, 0, 2800} {
				if !late {
					b.At = time.Date(2026, 12+time.Month(i), 2, 0, 0, 0, 0, time.UTC)
				}
				b.Settle("gw", b.At, 0, b.At)
				before := len(credits())
				preview, err := b.s.PreviewStatement(t.Context(), &quotav1.PreviewStatementRequest{Tenant: "acme", Period: time.Date(2026, 11+time.Month(i), 1, 0, 0, 0, 0, time.UTC).Format("2006-01")})
				if err != nil || len(credits()) != before {
					t.Fatalf("a preview made a credit: %v, %v", credits(), err)
				}
				got, err := b.close("", "")
				if err != nil {
					t.Fatal(err)
				}
				if got.Digest != preview.Statement.Digest {
					t.Errorf("%s was previewed as %s, and closed as %s", got.Period, preview.Statement.Document, got.Document)
				}
				again, err := b.close(got.Period, "")
				if err != nil || again.Digest != got.Digest {
					t.Errorf("%s again: %v, %v", got.Period, again, err)
				}
				s, err := billing.Decode([]byte(got.Document), got.Digest)
				if err != nil {
					t.Fatal(err)
				}
				sum := int64(0)
				for _, l := range s.Lines {
					sum += l.Amount
				}
				if got.Totals[0].Amount != want || sum != want {
					t.Errorf("%s: total %d, lines %d, want %d: %s", got.Period, got.Totals[0].Amount, sum, want, got.Document)
				}
				if i == 0 {
					all := credits()
					if len(all) != 2 || s.Lines[len(s.Lines)-1].Kind != billing.KindCarried || all[s.Lines[len(s.Lines)-1].Credit] != "24.00 USD" {
						t.Errorf("carried: %v, lines %+v", all, s.Lines)
					}
				}
			}
			// December took the 24.00 first, then 7.00 of the gift; January the other 3.00.
			for id, left := range credits() {
				if left != "0.00 USD" {
					t.Errorf("credit %s has %s left", id, left)
				}
			}
		})
	}
}
