package granted

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/server/judge"
)

// oneLimit are the rules of a policy of one limit.
type oneLimit struct{}

func (oneLimit) Limits(int64) (judge.Bounds, bool) {
	l := limit.Limit{Name: "requests", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100, Per: time.Second}}
	return judge.Bounds{Limits: map[string]judge.Bound{l.Name: judge.BoundOf(&l)}}, true
}

// BenchmarkOverdrafts is what holding a report against leases costs intake, where it fits.
func BenchmarkOverdrafts(b *testing.B) {
	o, err := NewOverdrafts(nil, oneLimit{}, nil, nil, slog.New(slog.DiscardHandler), time.Now, prometheus.NewRegistry())
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
		o.Check(b.Context(), reports).Note(receipts)
	}
	if o.of[e].totals[1] != total {
		b.Fatalf("it noted %d of %d units", o.of[e].totals[1], total)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rows)), "ns/row")
}
