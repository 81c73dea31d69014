package server

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// BenchmarkOverdrafts is what holding a report against leases costs intake, where it fits.
func BenchmarkOverdrafts(b *testing.B) {
	j := NewJudge(nil)
	j.known.versions.put(1, judge(&limit.Policy{Limits: []limit.Limit{{Name: "requests", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100, Per: time.Second}}}}))
	o, err := newOverdrafts(nil, j, nil, slog.New(slog.DiscardHandler), time.Now, prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	e := ledger.Epoch{Agent: "a", Epoch: 1}
	o.of[e] = &drawn{root: e, totals: map[int64]int64{1: 0}, limits: map[string]*drawnLimit{"requests": {recorded: ledger.Recorded{Granted: ledger.MaxTotal / 4}}}}
	o.runs[e] = o.of[e]
	rows := make([]ledger.Row, 1000)
	for i := range rows {
		rows[i] = ledger.Row{Slot: 300, Tenant: fmt.Sprint("tenant-", i), Limit: "requests", Meter: "requests", Version: 1, Attributes: "endpoint=/a", Admitted: 1}
	}
	rows = ledger.MergeRows(rows)
	receipts := []ledger.Receipt{{Status: ledger.Settled}}
	seq, total := int64(0), int64(0)
	reports := make([]ledger.Report, 1)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		seq++
		reports[0] = ledger.NewReport("a", 1, seq, total, rows, time.Now().UnixMilli(), false)
		total = reports[0].After
		b.StartTimer()
		o.check(b.Context(), reports).note(receipts)
	}
	if o.of[e].totals[1] != total {
		b.Fatalf("it noted %d of %d units", o.of[e].totals[1], total)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rows)), "ns/row")
}
