package usage

import (
	"slices"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

func TestOutbox(t *testing.T) {
	row := ledger.Row{Slot: 300, Tenant: "a", Limit: "l", Meter: "m", Version: 1}
	admit := func(o *Outbox, n int64) { o.Usage.add(row, counts{admitted: n}) }
	receipts := func(all ...ledger.Status) (r []ledger.Receipt) {
		for _, s := range all {
			r = append(r, ledger.Receipt{Status: s})
		}
		return r
	}

	o := NewOutbox("gw", 7)
	admit(o, 3)
	o.Freeze(1000, false)
	o.Freeze(2000, false) // a heartbeat
	admit(o, 4)
	o.Freeze(1500, false) // the clock stepped back
	sent := append([]ledger.Report(nil), o.Next(10, 1<<20)...)
	for i, want := range []ledger.Report{{Seq: 1, Before: 0, After: 3, Through: 1000}, {Seq: 2, Before: 3, After: 3, Through: 2000}, {Seq: 3, Before: 3, After: 7, Through: 2000}} {
		got := sent[i]
		if got.Agent != "gw" || got.Epoch != 7 || got.Seq != want.Seq || got.Before != want.Before || got.After != want.After || got.Through != want.Through || got.Check() != nil {
			t.Errorf("report %d: %+v (%v), want %+v", i, got, got.Check(), want)
		}
	}

	// Only the first is acknowledged: the others are sent again, the same.
	if progress, fault := o.Receive(sent, receipts(ledger.Settled, ledger.Unavailable, ledger.Ahead), 8); !progress || fault != nil {
		t.Errorf("progress %v, fault %v; want progress", progress, fault)
	}
	if again := o.Next(10, 1<<20); len(again) != 2 || again[0].Digest != sent[1].Digest || again[1].Digest != sent[2].Digest {
		t.Errorf("%d reports are sent again, want the same two", len(again))
	}
	// The reply to the first call comes again, late: it is of no interest.
	if progress, fault := o.Receive(sent, receipts(ledger.Settled, ledger.Settled, ledger.Settled), 8); progress || fault != nil {
		t.Errorf("a late reply: progress %v, fault %v", progress, fault)
	}
	if s := o.State(); s.Settled != 3 || s.Units != 4 || s.Reports != 2 || s.Through != 1000 {
		t.Errorf("%+v, want 3 settled, 4 in 2 reports, through 1000", s)
	}

	// The ledger lost what it had acknowledged: what it has not goes on under a new epoch.
	_, fault := o.Receive(o.Next(10, 1<<20), []ledger.Receipt{{Status: ledger.Ahead, NextSeq: 1}}, 8)
	if fault == nil || o.State().Epoch != 8 || o.State().Reports != 0 || o.Usage.Units() != 4 {
		t.Errorf("fault %+v, state %+v; want epoch 8 with 4 units to be reported anew", fault, o.State())
	}
	admit(o, 1)
	o.Freeze(3000, true)
	admit(o, 5)
	o.Freeze(4000, false) // after the last report there is none
	last := o.Next(10, 1<<20)
	if len(last) != 1 || last[0].Seq != 1 || last[0].Before != 0 || last[0].After != 5 || !last[0].Closed || last[0].Epoch != 8 {
		t.Errorf("%+v, want one report of epoch 8, the last, with 5 units", last)
	}
}

// Reports of a fenced epoch are put aside and never sent under another number; a
// rejected one is the ledger's, and those behind it settled nowhere.
func TestOutboxFenced(t *testing.T) {
	row := ledger.Row{Slot: 300, Tenant: "a", Limit: "l", Meter: "m", Version: 1}
	for _, c := range []struct {
		status       ledger.Status
		aside, units int64
		left         int64
	}{{ledger.Fenced, 3, 7, 0}, {ledger.Rejected, 1, 1, 6}} {
		o := NewOutbox("gw", 7)
		for _, n := range []int64{1, 2, 4} {
			o.Usage.add(row, counts{admitted: n})
			o.Freeze(1000, false)
		}
		_, fault := o.Receive(o.Next(10, 1<<20), []ledger.Receipt{{Status: c.status}, {Status: c.status}, {Status: c.status}}, 9)
		s := o.State()
		if fault == nil || s.AsideReports != c.aside || s.AsideUnits != c.units || s.Units != c.left || s.Epoch != 9 || len(o.Aside()) != int(c.aside) {
			t.Errorf("status %d: %+v; want %d reports of %d units aside, %d units to go on with", c.status, s, c.aside, c.units, c.left)
		}
	}
}

// What a call carries is bounded, and never nothing while something waits.
func TestOutboxNext(t *testing.T) {
	o := NewOutbox("gw", 1)
	for i := range int64(5) {
		o.Usage.add(ledger.Row{Slot: 300 * (100 + i), Tenant: "tenant", Limit: "l", Meter: "m"}, counts{admitted: 1})
		o.Freeze(i, false)
	}
	size := len(o.reports[0].Payload)
	for _, c := range []struct{ n, size, want int }{{10, 1 << 20, 5}, {2, 1 << 20, 2}, {10, 3*size + 1, 3}, {10, 1, 1}} {
		if got := len(o.Next(c.n, c.size)); got != c.want {
			t.Errorf("Next(%d, %d) returns %d reports, want %d", c.n, c.size, got, c.want)
		}
	}
	for range maxFrozen {
		o.Freeze(9, false)
	}
	if !o.Full() {
		t.Errorf("not full with %d reports", len(o.reports))
	}
}

// Units beyond what a report, or an epoch, may hold are in several, and none of them
// is one that the ledger would refuse.
func TestOutboxOfManyUnits(t *testing.T) {
	row := func(tenant string) ledger.Row {
		return ledger.Row{Slot: 300, Tenant: tenant, Limit: "l", Meter: "m", Version: 1}
	}
	o := NewOutbox("gw", 7)
	var want, got, denied int64
	totals := map[int64]int64{}
	closed := map[int64]bool{}
	for round := range int64(40) {
		// A row of four reports' denials, and two that do not fit into one.
		o.Usage.add(row("a"), counts{admitted: ledger.MaxReportUnits - 1, denied: 4 * ledger.MaxReportUnits})
		o.Usage.add(row("b"), counts{admitted: 2})
		want += ledger.MaxReportUnits + 1
		o.Freeze(1000+round, false)
		for sent := o.Next(100, 1<<20); len(sent) > 0; sent = o.Next(100, 1<<20) {
			var receipts []ledger.Receipt
			for _, r := range sent {
				if err := r.Check(); err != nil || r.Before != totals[r.Epoch] || closed[r.Epoch] {
					t.Fatalf("report %d of epoch %d: %v, begins at %d of %d, closed %v", r.Seq, r.Epoch, err, r.Before, totals[r.Epoch], closed[r.Epoch])
				}
				rows, err := ledger.DecodeRows(r.Payload)
				if err != nil {
					t.Fatal(err)
				}
				for _, row := range rows {
					got, denied = got+row.Admitted, denied+row.Denied
				}
				totals[r.Epoch], closed[r.Epoch] = r.After, r.Closed
				receipts = append(receipts, ledger.Receipt{Status: ledger.Settled})
			}
			if _, fault := o.Receive(append([]ledger.Report(nil), sent...), receipts, o.State().Epoch+1); fault != nil {
				t.Fatalf("fault %+v", fault)
			}
		}
	}
	if s := o.State(); got != want || s.Settled != want || s.Units != 0 || denied != 160*ledger.MaxReportUnits {
		t.Errorf("got %d units, %d denied, state %+v; want %d and %d", got, denied, s, want, int64(160*ledger.MaxReportUnits))
	}
	if len(totals) != 3 || !closed[7] || !closed[8] || closed[9] {
		t.Errorf("epochs %v, closed %v: want three, the first two closed", totals, closed)
	}
}

// What goes on from an epoch under another whose first report is rejected goes on from the same unit of the same epoch: the
// ledger knows nothing of the one between, and would let a copy of the journal go on from there as well.
func TestARejectedFirstReportKeepsItsOrigin(t *testing.T) {
	o := NewOutbox("gw", 7)
	row := func(tenant string) ledger.Row {
		return ledger.Row{Slot: 300, Tenant: tenant, Limit: "l", Meter: "m", Version: 1}
	}
	receive := func(next int64, receipts ...ledger.Receipt) {
		t.Helper()
		o.Receive(slices.Clone(o.Next(len(receipts), 1<<30)), receipts, next)
	}
	o.Usage.add(row("a"), counts{admitted: 30})
	o.Freeze(1000, false)
	receive(0, ledger.Receipt{Status: ledger.Settled, NextSeq: 2})
	o.Usage.add(row("a"), counts{admitted: ledger.MaxReportUnits - 1}) // two reports' units
	o.Usage.add(row("b"), counts{admitted: 2})
	o.Freeze(2000, false)
	copied := *o
	copied.reports = slices.Clone(o.reports)
	receive(8, ledger.Receipt{Status: ledger.Ahead, NextSeq: 1}) // it has forgotten the first
	o.Freeze(2000, false)
	receive(9, ledger.Receipt{Status: ledger.Rejected, NextSeq: 1})
	o.Freeze(2000, false)
	copied.Receive(slices.Clone(copied.Next(1, 1<<30)), []ledger.Receipt{{Status: ledger.Ahead, NextSeq: 1}}, 10)
	copied.Freeze(2000, false)

	now := time.Unix(600, 0)
	in := ledger.NewIntake(append(slices.Clone(o.reports), copied.reports...), ledger.Rules{Now: now, Window: ledger.Window{From: 0, To: now.Unix()}})
	settled := int64(0)
	for _, r := range in.Decide(nil, nil).Reports {
		settled += r.Report.After - r.Report.Before
	}
	if o.reports[0].Origin != (ledger.Origin{Epoch: 7, Total: 30}) || settled != 2 {
		t.Errorf("it goes on from %+v, and the ledger has %d units of both, want 2", o.reports[0].Origin, settled)
	}
}
