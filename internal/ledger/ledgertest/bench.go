package ledgertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Shape of the benchmarks' load: what agents report each ten seconds.
const (
	benchAgents = 100
	benchRows   = 1_000 // of one report, out of benchKeys
	benchKeys   = 10_000
)

// Bench measures intake, folding and reading, in rows of reports.
func Bench(b *testing.B, fresh func(t testing.TB) Engine) {
	b.Run("Settle", func(b *testing.B) {
		s, load := benchLedger(b, fresh)
		b.ReportAllocs()
		for b.Loop() {
			load.settle(b, s)
		}
		rowsPerSecond(b, benchAgents*benchRows)
	})
	b.Run("SettleOneByOne", func(b *testing.B) {
		s, load := benchLedger(b, fresh)
		b.ReportAllocs()
		b.SetParallelism(16)
		next := make(chan *agent, benchAgents)
		rows := load.rows(0)[:10]
		for i := range load.agents {
			next <- &load.agents[i]
		}
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				g := <-next
				r := g.report(load.clock.Now(), rows...)
				if got, err := settleOne(b.Context(), s, r); err != nil || got.Status != ledger.Settled {
					b.Errorf("got %+v, %v", got, err)
				}
				next <- g
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reports/s")
	})
	b.Run("Fold", func(b *testing.B) {
		s, load := benchLedger(b, fresh)
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			load.settle(b, s)
			b.StartTimer()
			if _, err := drain(b.Context(), s, load.clock.Now()); err != nil {
				b.Fatal(err)
			}
		}
		rowsPerSecond(b, benchAgents*benchRows)
	})
	b.Run("Usage", func(b *testing.B) {
		s, load := benchLedger(b, fresh)
		for range 12 { // an hour
			load.settle(b, s)
			if _, err := drain(b.Context(), s, load.clock.Now()); err != nil {
				b.Fatal(err)
			}
			load.clock.Advance(5 * time.Minute)
		}
		for by, name := range map[ledger.By]string{ledger.ByTotal: "total", ledger.ByHour: "hour", ledger.ByAttribute: "attribute"} {
			for _, tenant := range []string{"tenant-0000", ""} {
				b.Run(fmt.Sprintf("by=%s/all=%v", name, tenant == ""), func(b *testing.B) {
					for b.Loop() {
						if u, err := s.Usage(b.Context(), ledger.Query{Tenant: tenant, By: by}); err != nil || len(u.Rows) == 0 {
							b.Fatalf("got %+v, %v", u, err)
						}
					}
				})
			}
		}
	})
}

func rowsPerSecond(b *testing.B, rows int) {
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

type benchLoad struct {
	clock  *Clock
	agents []agent
}

func benchLedger(b *testing.B, fresh func(t testing.TB) Engine) (ledger.Store, *benchLoad) {
	clock := NewClock()
	load := &benchLoad{clock: clock, agents: make([]agent, benchAgents)}
	for i := range load.agents {
		load.agents[i].id = fmt.Sprintf("agent-%03d", i)
	}
	return fresh(b).Open(b, ledger.Options{Now: clock.Now}), load
}

// rows are an agent's: a tenth of all keys, which it shares with nine others.
func (l *benchLoad) rows(n int) []ledger.Row {
	rows := make([]ledger.Row, benchRows)
	for i := range rows {
		key := (n*benchRows + i) % benchKeys
		rows[i] = row(l.clock.Now(), fmt.Sprintf("tenant-%04d", key/10), 17)
		rows[i].Attributes = fmt.Sprintf("user=%d", key%10)
	}
	return rows
}

func (l *benchLoad) settle(b *testing.B, s ledger.Store) {
	b.Helper()
	reports := make([]ledger.Report, len(l.agents))
	for i := range l.agents {
		rows := l.rows(i)
		reports[i] = l.agents[i].report(l.clock.Now(), rows...)
	}
	receipts, err := s.Settle(b.Context(), reports)
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range receipts {
		if r.Status != ledger.Settled {
			b.Fatalf("got %+v", r)
		}
	}
}
