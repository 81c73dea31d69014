package ledgertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// drawn: rows above what was granted go to quarantine. Their accounts say so until somebody deals with them.
// Drawn counts the leases of their epoch, and usage of that epoch and the later ones without leases.
func drawn(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	books := booksOf(s)
	grant := func(epoch, number int64, r ledger.Recorded) {
		t.Helper()
		id := ledger.AccountID{Epoch: ledger.Epoch{Agent: "a", Epoch: epoch}, Limit: "requests"}
		if err := books.Record(t.Context(), "one", number, []ledger.Account{{ID: id, Recorded: r}}); err != nil {
			t.Fatal(err)
		}
	}
	recorded := clock.Now().UnixMilli()
	grant(10, 1, ledger.Recorded{Granted: 100, Unrun: 1, Returned: 5, Spent: 40})
	grant(30, 2, ledger.Recorded{Granted: 7})
	first, on, next := agent{id: "a", epoch: 10}, agent{id: "a", epoch: 11}, agent{id: "a", epoch: 30}
	var reports []ledger.Report
	report := func(a *agent, rows ...ledger.Row) *ledger.Report {
		reports = append(reports, a.report(clock.Now(), rows...))
		return &reports[len(reports)-1]
	}
	settle := func(r *ledger.Report, want ledger.Status) {
		t.Helper()
		if err := wantStatus(t.Context(), s, *r, want); err != nil {
			t.Fatal(err)
		}
	}
	settle(report(&first, row(clock.Now(), "acme", 50)), ledger.Settled)
	over := report(&first, row(clock.Now(), "acme", 9), row(clock.Now(), "zeta", 1000), row(clock.Now(), "zz", 500))
	over.Barred = func(r *ledger.Row) error {
		if r.Tenant == "zz" {
			return errors.New("it is another's")
		}
		return nil
	}
	over.Unchecked = true // whatever bars any of its rows
	settle(over, ledger.Unavailable)
	over.Unchecked = false
	over.Overdrawn = map[int]error{1: errors.New("it was granted less")}
	settle(over, ledger.Settled)
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	settle(report(&on, row(clock.Now(), "acme", 3)), ledger.Settled)
	settle(report(&next, row(clock.Now(), "acme", 2)), ledger.Settled)
	settle(report(&agent{id: "b", epoch: 10}, row(clock.Now(), "acme", 1)), ledger.Settled)

	through := clock.Now().UnixMilli()
	for epoch, want := range map[int64]ledger.Drawn{
		9:  {Root: 9, Next: 10},
		10: {Root: 10, Next: 30, Total: 1559, Through: through, Limits: map[string]ledger.DrawnLimit{"requests": {Recorded: ledger.Recorded{Granted: 100, Unrun: 1, Returned: 5, Spent: 40}, Settled: 62, Overdrawn: 1000}}},
		11: {Root: 10, Next: 30, Total: 3, Through: through, Limits: map[string]ledger.DrawnLimit{"requests": {Recorded: ledger.Recorded{Granted: 100, Unrun: 1, Returned: 5, Spent: 40}, Settled: 62, Overdrawn: 1000}}},
		29: {Root: 10, Next: 30, Through: through, Limits: map[string]ledger.DrawnLimit{"requests": {Recorded: ledger.Recorded{Granted: 100, Unrun: 1, Returned: 5, Spent: 40}, Settled: 62, Overdrawn: 1000}}},
		31: {Root: 30, Through: through, Limits: map[string]ledger.DrawnLimit{"requests": {Recorded: ledger.Recorded{Granted: 7}, Settled: 2}}},
	} {
		got, err := books.Drawn(t.Context(), ledger.Epoch{Agent: "a", Epoch: epoch})
		if err != nil {
			t.Fatal(err)
		}
		if got.Root != want.Root || got.Next != want.Next || got.Total != want.Total || got.Through != want.Through || !maps.Equal(got.Limits, want.Limits) || want.Limits != nil && got.Recorded != recorded {
			t.Errorf("epoch %d: got %+v, want %+v", epoch, got, want)
		}
	}

	differs := func() (units int64) {
		t.Helper()
		found, err := books.Reconcile(t.Context(), ledger.ReconcileQuery{N: 10})
		if err != nil {
			t.Fatal(err)
		}
		for i := range found {
			for _, d := range found[i].Differences() {
				if d.Name == ledger.Overdrawn && d.Fault() && found[i].ID.Epoch.Epoch == 10 {
					units += d.Units
				}
			}
		}
		return units
	}
	if got := differs(); got != 1000 {
		t.Errorf("settled above granted: got %d units, want 1000", got)
	}
	verify(t, s) // the ledger has no fault
	kept, err := books.Quarantine(t.Context(), ledger.QuarantineQuery{N: 10})
	if err != nil || len(kept) != 2 || !strings.HasPrefix(kept[0].Reason, ledger.OverdrawnPrefix+"it was granted less") {
		t.Fatalf("in quarantine: %+v, %v", kept, err)
	}
	withheld, err := books.Withheld(t.Context(), []ledger.Part{{Tenant: "acme", To: clock.Now().Unix() + 1}, {Tenant: "zeta", To: clock.Now().Unix() + 1}})
	if want := []ledger.Withheld{{Tenant: "zeta", Rows: 1, Units: 1000}}; err != nil || !slices.Equal(withheld, want) {
		t.Errorf("withheld: got %+v, %v, want %+v", withheld, err, want)
	}
	if done, err := books.Retry(t.Context(), operator, "it was its usage", []int64{kept[0].ID}); err != nil || len(done.Released) != 1 {
		t.Fatalf("released: %+v, %v", done, err)
	}
	if got := differs(); got != 0 {
		t.Errorf("settled above granted, once it is released: got %d units", got)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	if err := wantTotal(t.Context(), s, "zeta", 1000); err != nil {
		t.Error(err)
	}

	var rows []ledger.Row
	for i := range int64(3) {
		r := row(clock.Now(), fmt.Sprint("t", i), i)
		rows = append(rows, r)
		r.Version, r.Limit = 2, "other"
		rows = append(rows, r)
	}
	r := ledger.NewReport("a", 1, 1, 0, ledger.MergeRows(rows), clock.Now().UnixMilli(), false)
	got, err := r.ByLimit()
	slices.SortFunc(got, func(a, b ledger.LimitUnits) int { return strings.Compare(a.Limit, b.Limit) })
	if want := []ledger.LimitUnits{{Limit: "other", Version: 2, Units: 3}, {Limit: "requests", Version: 1, Units: 3}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("by limit: got %+v, %v, want %+v", got, err, want)
	}
}
