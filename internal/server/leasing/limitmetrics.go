package leasing

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// otherLimits is the label of limits that only tenants' overrides name. Tenants are millions, and may name limits as
// they like.
const otherLimits = "(override)"

// limitMetrics count leases' events, by limit and kind. There are labels for each limit that the policy in force or its
// shadow names; those of limits that are gone are dropped.
type limitMetrics struct {
	renewals *prometheus.CounterVec // limit, status
	granted  *prometheus.CounterVec // limit, kind, like all that follow
	returned *prometheus.CounterVec
	denied   *prometheus.CounterVec
	healed   *prometheus.CounterVec
	out      *prometheus.HistogramVec
	drawn    *prometheus.HistogramVec

	mu     sync.RWMutex
	named  map[string]bool
	counts map[limitKind]*limitCounts
}

type limitKind struct{ limit, kind string }

// limitCounts are the counters of one limit and kind, found once.
type limitCounts struct {
	status                            [quotav1.Grant_STATUS_UNAVAILABLE + 1]prometheus.Counter
	granted, returned, denied, healed prometheus.Counter
	out, drawn                        prometheus.Observer
}

// outBuckets show how near to a limit leases are, and how far above. 1 is the limit; leases within epsilon are just
// above it.
var outBuckets = []float64{0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.01, 1.05, 1.1, 1.25, 2}

func newLimitMetrics(renewals *prometheus.CounterVec) *limitMetrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quota_server_" + name + "_total", Help: help}, []string{"limit", "kind"})
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "quota_server_" + name, Help: help, Buckets: outBuckets}, []string{"limit", "kind"})
	}
	return &limitMetrics{
		renewals: renewals,
		out:      histogram("out_ratio", "At each renewal: tokens out of the bucket, over all holders, in parts of what it can hold."),
		drawn:    histogram("trickle_ratio", "At each renewal of a bucket that refills: trickles out of it, over all holders, in parts of its rate."),
		granted:  counter("granted_tokens", "Tokens leased to be spent at once, trickles not counted, by limit and kind."),
		returned: counter("returned_tokens", "Tokens that agents gave back, or exchanged for new ones, by limit and kind."),
		denied:   counter("deny_grants", "Renewals answered with a time to deny, because the bucket was exhausted or locked, by limit and kind."),
		healed:   counter("healed_leases", "Leases declared again to a lease store that had forgotten their bucket, by limit and kind."),
		counts:   make(map[limitKind]*limitCounts),
	}
}

func (m *limitMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.granted, m.returned, m.denied, m.healed, m.out, m.drawn}
}

// kindOf says which kind of the limit's buckets a renewal is of.
func kindOf(r *quotav1.Renewal) string {
	switch {
	case r.Shadow:
		return "shadow"
	case r.Kind == quotav1.Renewal_KIND_OVERAGE:
		return "overage"
	}
	return "limit"
}

// answered counts one renewal, its answer, and how much of the bucket is then out.
func (c *limitCounts) answered(r *quotav1.Renewal, g *quotav1.Grant, spec *lease.Spec, after *lease.Grant) {
	if s := int(g.Status); s < len(c.status) {
		c.status[s].Inc()
	}
	if g.Status != quotav1.Grant_STATUS_GRANTED {
		return
	}
	c.granted.Add(float64(g.Tokens + g.NextTokens))
	c.returned.Add(float64(r.Held))
	rate, capacity := spec.Flow()
	c.out.Observe(float64(after.Out) * limit.Micro / float64(capacity))
	if rate > 0 {
		c.drawn.Observe(float64(after.Drawn) / float64(rate))
	}
	if g.DenyForMs > 0 {
		c.denied.Inc()
	}
	if r.Generation > 0 && g.Generation > r.Generation {
		c.healed.Inc()
	}
}

// of returns the counters of a limit.
func (m *limitMetrics) of(name, kind string) *limitCounts {
	m.mu.RLock()
	c := m.counts[m.keyLocked(name, kind)]
	m.mu.RUnlock()
	if c != nil {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := m.keyLocked(name, kind)
	if c = m.counts[key]; c != nil {
		return c
	}
	c = &limitCounts{
		granted: m.granted.WithLabelValues(key.limit, kind), returned: m.returned.WithLabelValues(key.limit, kind),
		denied: m.denied.WithLabelValues(key.limit, kind), healed: m.healed.WithLabelValues(key.limit, kind),
		out: m.out.WithLabelValues(key.limit, kind), drawn: m.drawn.WithLabelValues(key.limit, kind),
	}
	for s := range c.status {
		c.status[s] = m.renewals.WithLabelValues(key.limit, rpc.StatusLabel(quotav1.Grant_Status(s)))
	}
	m.counts[key] = c
	return c
}

func (m *limitMetrics) keyLocked(name, kind string) limitKind {
	if !m.named[name] {
		name = otherLimits
	}
	return limitKind{name, kind}
}

// names reports whether a policy names a limit.
func (m *limitMetrics) names(limit string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.named[limit]
}

// follow drops the counters of limits that no policy names any more.
func (m *limitMetrics) follow(policies ...*limit.Rules) {
	named := make(map[string]bool)
	add := func(limits []limit.Limit) {
		for i := range limits {
			named[limits[i].Name] = true
		}
	}
	for _, rules := range policies {
		if rules == nil {
			continue
		}
		add(rules.Policy.Limits)
		for i := range rules.Policy.Plans {
			add(rules.Policy.Plans[i].Limits)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.named {
		if named[name] {
			continue
		}
		gone := prometheus.Labels{"limit": name}
		for _, v := range []interface {
			DeletePartialMatch(prometheus.Labels) int
		}{m.renewals, m.granted, m.returned, m.denied, m.healed, m.out, m.drawn} {
			v.DeletePartialMatch(gone)
		}
	}
	for k := range m.counts {
		if !named[k.limit] && k.limit != otherLimits {
			delete(m.counts, k)
		}
	}
	m.named = named
}
