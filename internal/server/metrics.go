package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// metrics are the server's own. Labels are methods, results, limits' names and
// parts: never a tenant, a value or an agent.
type metrics struct {
	renewals   *prometheus.CounterVec // limit, status
	step       prometheus.Histogram   // seconds of one batch in the lease store
	batch      prometheus.Histogram   // renewals in one RPC
	receipts   *prometheus.CounterVec // status
	unchecked  prometheus.Counter
	settle     prometheus.Histogram   // seconds of one call
	folded     prometheus.Counter     // reports folded by this server
	foldErrors prometheus.Counter     //
	watchers   prometheus.Gauge       //
	ready      prometheus.Gauge       //
	losses     *prometheus.CounterVec // noticed
	figures    *prometheus.CounterVec // result
	unnoted    prometheus.Counter     // calls
	ledgers    prometheus.Counter     // that came in place of another
	foreign    prometheus.Counter     // renewals
	limits     *limitMetrics
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_server_renewals_total", Help: "Renewals of buckets answered, by limit and status; without a limit where the policy has none.",
		}, []string{"limit", "status"}),
		step: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "quota_server_lease_step_seconds", Help: "How long the lease store took for the renewals of one call.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 2.5, 12),
		}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "quota_server_renew_batch_size", Help: "Renewals in one call.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 7),
		}),
		receipts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_server_settle_receipts_total", Help: "Reports answered, by the receipt's status.",
		}, []string{"status"}),
		settle: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "quota_server_settle_seconds", Help: "How long the ledger took for the reports of one call.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12),
		}),
		folded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_folded_reports_total", Help: "Reports that this server folded into blocks.",
		}),
		foldErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_fold_errors_total", Help: "Folds that failed, and are tried again.",
		}),
		watchers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quota_server_watchers", Help: "Agents that watch for changes.",
		}),
		losses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_server_lease_store_losses_total", Help: "Parts of the lease store that forgot, as this server noticed it: emptied, behind, another or evicted.",
		}, []string{"noticed"}),
		figures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_server_ledger_figures_total", Help: "Questions to the ledger of what was used of a window that the lease store does not know, by result: known or unknown.",
		}, []string{"result"}),
		unchecked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_unchecked_reports_total", Help: "Reports that were not taken because it could not be found out whether what they name exists; their agents keep and send them again.",
		}),
		unnoted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_unnoted_holders_total", Help: "Calls that were answered before the ledger knew that their agent may have usage of their tenants, because it did not answer in time: until it does, usage may be called complete without that agent's.",
		}),
		ledgers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_ledger_changes_total", Help: "Times that the ledger was found to be another than before: restarted, restored or failed over.",
		}),
		foreign: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_foreign_buckets_total", Help: "Renewals of buckets that the lease store holds in a later build's format, answered as if the store were away: this server is to be replaced.",
		}),
		ready: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quota_server_ready", Help: "1 when every part works.",
		}),
	}
	for _, w := range lease.Whys() {
		m.losses.WithLabelValues(string(w))
	}
	m.limits = newLimitMetrics(m.renewals)
	for _, c := range append(m.limits.collectors(), m.renewals, m.step, m.batch, m.receipts, m.settle,
		m.folded, m.foldErrors, m.watchers, m.ready,
		m.losses, m.figures, m.unnoted, m.unchecked, m.ledgers, m.foreign) {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
