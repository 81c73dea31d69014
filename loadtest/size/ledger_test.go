package size

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqliteledger"
)

// Gateways report to a ledger, which folds as servers do: it has as many rows and entries as the formula says. A fold writes
// an entry of each key and slot that it has a report of, so that what counts is folds, and not slots.
func TestBookedAsTheLedgerFolds(t *testing.T) {
	for _, test := range []struct {
		gateways     int
		d            float64 // of a key at each
		report, fold time.Duration
		servers      int
	}{
		{1, 100, 10 * time.Second, 10 * time.Second, 1},
		{3, 100, 10 * time.Second, 10 * time.Second, 2},
		{1, 100, time.Minute, 10 * time.Second, 1},
		{5, 0.02, 10 * time.Second, 10 * time.Second, 1},
		{5, 0.02, 10 * time.Second, time.Minute, 1},
		{2, 0.005, time.Minute, 10 * time.Second, 1},
	} {
		t.Run(fmt.Sprintf("%d gateways, %g a second, reports %s, folds %s", test.gateways, test.d, test.report, test.fold), func(t *testing.T) {
			const keys, slots = 20, 4
			rows, entries := fold(t, test.gateways, test.d, test.report, test.fold/time.Duration(test.servers), keys, slots)
			b := booked(float64(test.gateways), test.d, test.report, test.fold, test.servers)
			each := slots * ledger.DefaultSlot.Seconds() * keys
			for what, v := range map[string][2]float64{"rows": {rows / each, b.rows}, "entries": {entries / each, b.entries}} {
				if got, want := v[1], v[0]; math.Abs(got-want) > 0.15*want {
					t.Errorf("%s a second of a key: the formula has %.4f, the ledger %.4f", what, got, want)
				}
			}
		})
	}
}

// fold has gateways use keys at random, report and be folded for some slots. It returns how many rows were reported, and the ledger's entries.
func fold(t *testing.T, gateways int, d float64, report, every time.Duration, keys, slots int) (rows, entries float64) {
	t.Helper()
	store, err := sqliteledger.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	random := rand.New(rand.NewPCG(1, 2))
	span := time.Duration(slots) * ledger.DefaultSlot
	begin := time.Now().Truncate(ledger.DefaultSlot).Add(-span - time.Hour)
	type gateway struct {
		last, at   time.Duration // reports: a tenth more or less than an interval apart, as pkg/client's are
		seq, total int64
	}
	all := make([]gateway, gateways)
	for i := range all {
		all[i].at = time.Duration(random.Int64N(int64(report)))
	}
	used := func(length time.Duration) bool { return random.Float64() < 1-math.Exp(-d*length.Seconds()) }
	send := func(i int) {
		g := &all[i]
		var of []ledger.Row
		from := g.last
		edge := g.at.Truncate(ledger.DefaultSlot)
		for k := range keys {
			for _, part := range [][2]time.Duration{{from, max(from, edge)}, {max(from, edge), g.at}} {
				if part[1] > part[0] && used(part[1]-part[0]) {
					slot := begin.Add(part[0].Truncate(ledger.DefaultSlot)).Unix()
					of = append(of, ledger.Row{Slot: slot, Tenant: fmt.Sprintf("tenant-%d", k), Limit: "requests", Meter: "requests", Version: 1, Admitted: 1})
				}
			}
		}
		of = ledger.MergeRows(of)
		g.seq++
		r := ledger.NewReport(fmt.Sprintf("agent-%d", i), 1, g.seq, g.total, of, begin.Add(g.at).UnixMilli(), false)
		receipts, err := store.Settle(t.Context(), []ledger.Report{r})
		if err != nil || receipts[0].Status != ledger.Settled {
			t.Fatalf("a report was not settled: %v, %v", receipts, err)
		}
		g.total, rows, g.last = r.After, rows+float64(len(of)), g.at
		g.at += time.Duration(float64(report) * (0.9 + 0.2*random.Float64()))
	}
	for at := every; at <= span+2*report+every; at += every {
		for i := range all {
			for all[i].at < at && all[i].last < span {
				send(i)
			}
		}
		for left := true; left; {
			if _, left, err = store.Fold(t.Context(), begin.Add(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := store.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM entries").Scan(&entries); err != nil {
		t.Fatal(err)
	}
	return rows, entries
}
