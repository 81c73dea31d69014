package leasing

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Metrics are what leasing counts. Labels are results and limits' names: never a tenant, a value or an agent.
type Metrics struct {
	renewals *prometheus.CounterVec // limit, status
	step     prometheus.Histogram   // seconds of one batch in the lease store
	batch    prometheus.Histogram   // renewals in one RPC
	watchers prometheus.Gauge
	figures  *prometheus.CounterVec // result
	unnoted  prometheus.Counter     // calls
	foreign  prometheus.Counter     // renewals
	limits   *limitMetrics
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
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
		watchers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quota_server_watchers", Help: "Agents that watch for changes.",
		}),
		figures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_server_ledger_figures_total", Help: "Questions to the ledger about the usage of a window that the lease store does not know, by result: known or unknown.",
		}, []string{"result"}),
		unnoted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_unnoted_holders_total", Help: "Calls whose agent the ledger noted as a holder of their tenants more than 5 s later, or not at all because too many waited. Meanwhile usage may have been called complete without that agent's.",
		}),
		foreign: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_foreign_buckets_total", Help: "Renewals of buckets in the format of a later build, answered as if the lease store were away. This server must be replaced.",
		}),
	}
	m.limits = newLimitMetrics(m.renewals)
	for _, c := range append(m.limits.collectors(), m.renewals, m.step, m.batch, m.watchers, m.figures, m.unnoted, m.foreign) {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Names reports whether a policy names a limit: see Follow.
func (m *Metrics) Names(limit string) bool { return m.limits.names(limit) }

// Follow drops the counters of limits that neither the policy in force nor the shadow names.
func (m *Metrics) Follow(rules, tried *limit.Rules) { m.limits.follow(rules, tried) }
