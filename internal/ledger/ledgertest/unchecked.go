package ledgertest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// unchecked: a report has a row that nobody can judge now. Nothing of it is stored, and its neighbours settle.
// It settles once the row can be judged. Corrections are refused meanwhile.
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

// unsealed: rows that a journal does not vouch for are all in quarantine, and billed once an operator accepts
// them. The same report again is acknowledged. Usage that the epoch had before is billed.
func unsealed(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now, Accept: refuse})
	now := clock.Now()
	a := agent{id: "a"}
	first := a.report(now, row(now, "acme", 1))
	doubtful := a.report(now, row(now, "acme", 2), row(now, "unknown-1", 4), row(now, "zeta", 8))
	doubtful.Unsealed = true
	for _, want := range []ledger.Status{ledger.Settled, ledger.Already} {
		receipts, err := s.Settle(t.Context(), []ledger.Report{first, doubtful})
		if err != nil || receipts[0].Status != want || receipts[1].Status != want {
			t.Errorf("got %+v, %v, want status %d", receipts, err, want)
		}
	}
	if err := wantTotal(t.Context(), s, "acme", 1); err != nil {
		t.Error(err)
	}
	books := booksOf(s)
	kept, err := books.Quarantine(t.Context(), ledger.QuarantineQuery{N: 10})
	if err != nil || len(kept) != 3 {
		t.Fatalf("quarantine: got %v, %v, want the three rows", kept, err)
	}
	var ids []int64
	for i := range kept {
		if ids = append(ids, kept[i].ID); !strings.HasPrefix(kept[i].Reason, ledger.UnsealedPrefix) {
			t.Errorf("its reason is %q", kept[i].Reason)
		}
	}
	if done, err := books.Retry(t.Context(), operator, "it was killed", ids); err != nil || len(done.Released) != 2 || len(done.Refused) != 1 {
		t.Errorf("retry: %+v, %v, want all but the row that may be nobody's", done, err)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(wantTotal(t.Context(), s, "acme", 3), wantTotal(t.Context(), s, "zeta", 8)); err != nil {
		t.Error(err)
	}
	// A report that is kept whole says so as well.
	bad := a.report(now, row(now, "acme", 16))
	bad.Unsealed, bad.Digest = true, [32]byte{}
	if receipts, err := s.Settle(t.Context(), []ledger.Report{bad}); err != nil || receipts[0].Status != ledger.Rejected {
		t.Fatalf("of a digest that is none: %+v, %v", receipts, err)
	}
	kept, err = books.Quarantine(t.Context(), ledger.QuarantineQuery{N: 10, After: slices.Max(ids)})
	if err != nil || len(kept) != 1 || kept[0].Row >= 0 || !strings.HasPrefix(kept[0].Reason, ledger.UnsealedPrefix) {
		t.Errorf("kept whole: %+v, %v, want that it is unsealed", kept, err)
	}
}
