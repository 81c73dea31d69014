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
	rules := Rules{Now: now, Window: Window{From: Month(now.Unix()).Unix(), To: now.AddDate(0, 2, 0).Unix()}, Accept: func(string, Row) error { return errors.New("no") }}
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

// One transaction has an epoch, the one that goes on from it, and another that would. Each frontier moves once,
// and the epoch's own settlement in it counts.
func TestAnEpochEndsInTheBatchThatGoesOn(t *testing.T) {
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	rules := Rules{Now: now, Window: Window{From: Month(now.Unix()).Unix(), To: now.AddDate(0, 2, 0).Unix()}}
	report := func(epoch, seq, before, units int64, origin Origin) Report {
		r := NewReport("a", epoch, seq, before, []Row{{Slot: now.Unix(), Tenant: "t", Limit: "l", Version: 1, Admitted: units}}, now.UnixMilli(), false)
		r.Origin = origin
		return r
	}
	for _, c := range []struct {
		reports []Report
		want    string // of each receipt, and of each move
	}{
		{[]Report{report(9, 1, 0, 5, Origin{1, 12}), report(1, 1, 0, 12, Origin{}), report(8, 1, 0, 5, Origin{1, 12})}, "[4 1 1] 1:12→8@12 8:5→0@0 9:0→0@0"},
		{[]Report{report(9, 1, 0, 5, Origin{1, 11}), report(1, 1, 0, 12, Origin{})}, "[4 1] 1:12→0@0 9:0→0@0"},
		{[]Report{report(9, 1, 0, 5, Origin{1, 12}), report(9, 2, 5, 5, Origin{})}, "[1 1] 1:0→9@12 9:10→0@0"},
		{[]Report{report(8, 1, 0, 5, Origin{1, 12}), report(9, 1, 0, 5, Origin{8, 5})}, "[1 1] 1:0→8@12 8:5→9@5 9:5→0@0"},
	} {
		in := NewIntake(c.reports, rules)
		all, begin := in.Epochs()
		out := in.Decide(nil, nil)
		statuses := make([]Status, len(out.Receipts))
		for i, r := range out.Receipts {
			statuses[i] = r.Status
		}
		got := fmt.Sprint(statuses)
		for i, m := range out.Moves {
			got += fmt.Sprintf(" %d:%d→%d@%d", m.To.Epoch.Epoch, m.To.Total, m.To.Next, m.To.Ends)
			if m.From.Epoch != m.To.Epoch || m.From.Seq != 0 || all[i] != m.To.Epoch || begin[i] != m.To.Epoch {
				t.Errorf("%s: move %d is from %+v; %v are locked, %v made", c.want, i, m.From, all, begin)
			}
		}
		if got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
