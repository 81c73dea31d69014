package intake

import (
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/granted"
	"github.com/f4ee788f/quota/internal/server/judge"
)

// Service takes agents' reports.
type Service struct {
	ledger   ledger.Store
	judge    *judge.Judge // nil where the ledger accepts all
	name     *ledgerName
	tally    *granted.Tally      // nil without books
	over     *granted.Overdrafts // nil where nothing is held against agents
	settling *authn.Budgets
	metrics  *metrics
}

// Config is what intake is made of. Judge, Tally and Overdrafts may be nil.
type Config struct {
	Ledger     ledger.Store
	Judge      *judge.Judge
	Tally      *granted.Tally
	Overdrafts *granted.Overdrafts
	// Forget is told that the ledger is another: callers must forget what the one before held.
	Forget     func()
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// New returns the service.
func New(c Config) (*Service, error) {
	m, err := newMetrics(c.Registerer)
	return &Service{
		ledger: c.Ledger, judge: c.Judge, tally: c.Tally, over: c.Overdrafts, settling: authn.NewBudgets(settleBudget), metrics: m,
		name: &ledgerName{ledger: c.Ledger, log: c.Log, changed: m.ledgers, forget: c.Forget},
	}, err
}

// metrics are what intake counts.
type metrics struct {
	receipts  *prometheus.CounterVec // status
	unchecked prometheus.Counter
	settle    prometheus.Histogram // seconds of one call
	ledgers   prometheus.Counter   // that came in place of another
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		receipts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_server_settle_receipts_total", Help: "Reports answered, by the receipt's status.",
		}, []string{"status"}),
		settle: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "quota_server_settle_seconds", Help: "How long the ledger took for the reports of one call.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12),
		}),
		unchecked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_unchecked_reports_total", Help: "Reports refused because it could not be found out whether the names in them exist. Their agents keep them and send them again.",
		}),
		ledgers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_ledger_changes_total", Help: "Times that the ledger was found to be another than before: restarted, restored or failed over.",
		}),
	}
	return m, errors.Join(r.Register(m.receipts), r.Register(m.settle), r.Register(m.unchecked), r.Register(m.ledgers))
}
