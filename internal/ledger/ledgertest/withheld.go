package ledgertest

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// withheld tells what of whom is in quarantine, of slots before a time, until it is released or discarded.
func withheld(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	known := false
	s := e.Open(t, ledger.Options{Now: clock.Now, Accept: func(_ string, r ledger.Row) error {
		if !known && r.Meter == "new" {
			return errors.New("unknown meter")
		}
		return nil
	}})
	books := booksOf(s)
	slot := Start.Unix()
	row := func(tenant, meter string, at, units int64) ledger.Row {
		return ledger.Row{Slot: at, Tenant: tenant, Limit: "requests", Meter: meter, Admitted: units}
	}
	r := ledger.NewReport("a", 0, 1, 0, []ledger.Row{
		row("acme", "new", slot, 1<<40), row("acme", "new", slot-300, 5), row("acme", "new", slot+300, 7), row("acme", "old", slot, 11),
		{Slot: slot - 300, Tenant: "acme", Limit: "denials", Meter: "new", Denied: 21}, // which are on no statement
		row("zeta", "new", slot, 13), row("a\x00", "new", slot, 17), row("other", "new", slot, 19),
	}, Start.UnixMilli(), false)
	if receipts, err := s.Settle(t.Context(), []ledger.Report{r}); err != nil || receipts[0].Status != ledger.Settled {
		t.Fatalf("settle: %v, %v", receipts, err)
	}
	wants := func(what string, before int64, want ...ledger.Withheld) {
		t.Helper()
		var of []ledger.Part
		for _, tenant := range []string{"acme", "zeta", "nobody"} { // in parts that meet
			of = append(of, ledger.Part{Tenant: tenant, From: math.MinInt64, To: slot}, ledger.Part{Tenant: tenant, From: slot, To: max(slot, before)})
			of[len(of)-2].To = min(slot, before)
		}
		got, err := books.Withheld(t.Context(), of)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, %v, want %v", what, got, err, want)
		}
	}
	wants("before them", slot-300)
	wants("before the last slots", slot, ledger.Withheld{Tenant: "acme", Rows: 1, Units: 5})
	wants("all", slot+301, ledger.Withheld{Tenant: "acme", Rows: 3, Units: 1<<40 + 12}, ledger.Withheld{Tenant: "zeta", Rows: 1, Units: 13})

	only, err := books.Withheld(t.Context(), []ledger.Part{{Tenant: "acme", From: slot - 300, To: slot}, {Tenant: "acme", From: slot + 300, To: slot + 600}})
	if err != nil || len(only) != 1 || only[0] != (ledger.Withheld{Tenant: "acme", Rows: 2, Units: 12}) {
		t.Errorf("in parts of time: got %v, %v, want the two of acme's rows that are in them", only, err)
	}

	// What somebody brings of tenants that are not his holds none of them back, whatever else is wrong with it.
	barred := ledger.NewReport("b", 0, 1, 0, []ledger.Row{row("acme", "new", slot, 23), row("acme", "old", slot, 29)}, Start.UnixMilli(), false)
	barred.Barred = func(*ledger.Row) error { return errors.New("not his") }
	if receipts, err := s.Settle(t.Context(), []ledger.Report{barred}); err != nil || receipts[0].Status != ledger.Settled {
		t.Fatalf("settle: %v, %v", receipts, err)
	}
	wants("with another's rows", slot+301, ledger.Withheld{Tenant: "acme", Rows: 3, Units: 1<<40 + 12}, ledger.Withheld{Tenant: "zeta", Rows: 1, Units: 13})

	kept, err := books.Quarantine(t.Context(), ledger.QuarantineQuery{N: 10})
	if err != nil || len(kept) != 9 {
		t.Fatalf("quarantine: %v, %v", kept, err)
	}
	ids := make(map[int64]int64) // by units
	for i := range kept {
		rows, err := ledger.DecodeRows(kept[i].Body)
		if err != nil || len(rows) != 1 {
			t.Fatalf("row %d: %v, %v", i, rows, err)
		}
		ids[rows[0].Admitted] = kept[i].ID
	}
	if err := books.Discard(t.Context(), "ann", "r", []int64{ids[1<<40]}); err != nil {
		t.Fatal(err)
	}
	known = true
	if _, err := books.Retry(t.Context(), "ann", "r", []int64{ids[5]}); err != nil {
		t.Fatal(err)
	}
	wants("after some are resolved", slot+301, ledger.Withheld{Tenant: "acme", Rows: 1, Units: 7}, ledger.Withheld{Tenant: "zeta", Rows: 1, Units: 13})
	clock.Advance(time.Minute)
	if _, _, err := s.Fold(t.Context(), clock.Now()); err != nil {
		t.Fatal(err)
	}
	verify(t, s)

	// Rows of an earlier release may be anybody's.
	e.Tamper(t, "UPDATE quarantine SET tenant = NULL, slot = NULL, units = NULL WHERE tenant = 'zeta'")
	wants("with a row of before", slot+301, ledger.Withheld{Rows: 1}, ledger.Withheld{Tenant: "acme", Rows: 1, Units: 7})
	verify(t, s)
	tampered(t, e, s, []tamper{{"a note of another tenant", "UPDATE quarantine SET tenant = 'zeta' WHERE units = 7", "is noted as 7 units of tenant"}})
}
