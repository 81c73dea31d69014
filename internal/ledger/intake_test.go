package ledger

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// One transaction puts only so many rows into quarantine, whatever a call brings:
// what is beyond is sent again, and its neighbours settle.
func TestQuarantineIsFilledInParts(t *testing.T) {
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	var reports []Report
	for i := range 4 {
		rows := make([]Row, MaxRows)
		for n := range rows {
			rows[n] = Row{Slot: now.Unix(), Tenant: "t", Limit: "l", Version: int64(n), Admitted: 1}
		}
		reports = append(reports, NewReport(fmt.Sprintf("a%d", i), 1, 1, 0, rows, now.UnixMilli(), false))
	}
	rules := Rules{Now: now, Window: Window{From: Month(now.Unix()).Unix(), To: now.AddDate(0, 2, 0).Unix()}, Accept: func(Row) error { return errors.New("no") }}
	for round, want := range []string{"[1 1 5 5]", "[1 1]"} {
		in := NewIntake(reports, rules)
		all, _ := in.Epochs()
		out := in.Decide(nil, nil)
		var got []Status
		var again []Report
		for i, r := range out.Receipts {
			got = append(got, r.Status)
			if r.Status == Unavailable {
				again = append(again, reports[i])
			}
		}
		if fmt.Sprint(got) != want || len(out.Kept) != maxKeptRows || len(all) != 2 || len(out.Moves) != 2 {
			t.Fatalf("round %d: got %v, %d rows kept, %d frontiers moved, want %s and %d rows", round, got, len(out.Kept), len(out.Moves), want, maxKeptRows)
		}
		reports = again
	}
}
