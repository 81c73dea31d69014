package ledgertest

import (
	"errors"
	"testing"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// unchecked: of a report with a row that nobody can judge now nothing is stored, its neighbours settle, and it settles when
// the row can be judged. Corrections are refused meanwhile.
func unchecked(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	away := true
	s := e.Open(t, ledger.Options{Now: clock.Now, Accept: func(agent string, r ledger.Row) error {
		if away && r.Tenant == "new" {
			return ledger.ErrUnchecked
		}
		return refuse(agent, r)
	}})
	now := clock.Now()
	a, b := agent{id: "a"}, agent{id: "b"}
	reports := []ledger.Report{
		a.report(now, row(now, "acme", 1), row(now, "unknown-1", 2), row(now, "new", 4)), a.report(now, row(now, "acme", 8)), b.report(now, row(now, "acme", 16)),
	}
	wants := func(when string, units int64, kept int, statuses ...ledger.Status) {
		t.Helper()
		receipts, err := s.Settle(t.Context(), reports)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range statuses {
			if receipts[i].Status != want || receipts[i].Unchecked != (want == ledger.Unavailable) {
				t.Errorf("%s: report %d is answered %+v, want status %d", when, i, receipts[i], want)
			}
		}
		u, err := s.Usage(t.Context(), ledger.Query{})
		if err != nil || len(u.Rows) != 1 || u.Rows[0].Admitted != units {
			t.Errorf("%s: usage is %+v, want %d units: %v", when, u.Rows, units, err)
		}
		if rows := e.Query(t, "SELECT reason FROM quarantine"); len(rows) != kept {
			t.Errorf("%s: quarantine has %v, want %d rows", when, rows, kept)
		}
	}
	wants("unchecked", 16, 0, ledger.Unavailable, ledger.Ahead, ledger.Settled)
	if rows := e.Query(t, "SELECT agent FROM frontier WHERE agent = 'a'"); len(rows) > 0 {
		t.Error("a report that is not stored began an epoch")
	}
	c, err := ledger.NewCorrection(ledger.KindBackfill, "k", false, []ledger.Row{row(now, "new", 32)}, "why")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := booksOf(s).Correct(t.Context(), "ann", c); !errors.Is(err, ledger.ErrUnchecked) {
		t.Errorf("a correction that nobody can judge: got %v, want that it is unavailable", err)
	}
	away = false
	wants("known", 29, 1, ledger.Settled, ledger.Settled, ledger.Already)
}
