package view

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the view's.
type metrics struct {
	policyVersion prometheus.Gauge
	refresh       *prometheus.CounterVec // result
	tenants       prometheus.Gauge       // tenants in memory
	tenantLoads   *prometheus.CounterVec // result: hit, miss, error
	faultyTenants prometheus.Gauge
	switchMode    prometheus.Gauge // limit.Mode
	switchDenied  prometheus.Gauge // tenants
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		policyVersion: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quota_server_policy_version", Help: "The policy version in force; 0 before one is known.",
		}),
		refresh: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_server_policy_polls_total", Help: "Looks for changes of policy, tenants, keys and switches, by result.",
		}, []string{"result"}),
		tenants: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quota_server_cached_tenants", Help: "Tenants held in memory.",
		}),
		tenantLoads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_server_tenant_lookups_total", Help: "Tenants looked up, by result: hit, miss or error.",
		}, []string{"result"}),
		faultyTenants: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quota_server_faulty_tenants", Help: "Tenants whose overrides could not be made out when this server last read them. Known tenants keep their limits; unknown ones are not answered.",
		}),
		switchMode: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quota_server_switch_mode", Help: "What this server tells its agents: 0 normal, 1 allow all, 2 shadow all.",
		}),
		switchDenied: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quota_server_switch_denied_tenants", Help: "Tenants whose requests the switches deny.",
		}),
	}
	return m, errors.Join(r.Register(m.policyVersion), r.Register(m.refresh), r.Register(m.tenants), r.Register(m.tenantLoads),
		r.Register(m.faultyTenants), r.Register(m.switchMode), r.Register(m.switchDenied))
}
