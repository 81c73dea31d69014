package doors

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/headers"
	"github.com/f4ee788f/quota/pkg/client"
)

// Doors, as metrics name them.
const (
	doorCheck  = "check"
	doorEnvoy  = "envoy"
	doorDecide = "decide"
)

// Results, as metrics name them.
const (
	resultOK          = "ok"
	resultBooked      = "booked" // what Envoy reports after the fact
	resultOwed        = "owed"   // likewise, where it cannot be booked yet
	resultLost        = "lost"   // and what can never be
	resultOverLimit   = "over_limit"
	resultRefused     = "refused"
	resultUnavailable = "unavailable"
	resultBadRequest  = "bad_request"
)

// Metrics counts what doors answer.
type Metrics struct {
	answers *prometheus.CounterVec
	streams prometheus.Gauge
	frames  prometheus.Counter
	// decided is the counters of thin clients' decisions, by outcome. They are looked up once, because a look-up costs
	// as much as the decision.
	decided [outcomes]prometheus.Counter
}

// NewMetrics registers the metrics; it fails when they are there already.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_agent_answers_total",
			Help: "Answers to gateways, by door and result.",
		}, []string{"door", "result"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quota_agent_streams",
			Help: "Streams of thin clients that are open.",
		}),
		frames: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_agent_frames_total",
			Help: "Messages of thin clients. The decide door's answers divided by these are the questions in a message.",
		}),
	}
	for o, result := range [outcomes]string{decidedOK: resultOK, decidedOver: resultOverLimit, decidedRefused: resultRefused, decidedNot: resultUnavailable} {
		m.decided[o] = m.answers.WithLabelValues(doorDecide, result)
	}
	for _, c := range []prometheus.Collector{m.answers, m.streams, m.frames} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) count(door, result string) { m.answers.WithLabelValues(door, result).Inc() }

// Outcomes of a thin client's question.
const (
	decidedOK = iota
	decidedOver
	decidedRefused // no limit is used up: waiting does not help
	decidedNot     // the service and not the caller is at fault
	outcomes
)

// counts is what was decided since it was last added to the metrics.
type counts [outcomes]uint32

func (c *counts) add(d client.Decision) { c[outcomeOf(d)]++ }

// outcomeOf is a decision's, by its status.
func outcomeOf(d client.Decision) int {
	if d.Allowed {
		return decidedOK
	}
	switch row := headers.RowOf(d.Reason.String()); {
	case row.Status == http.StatusServiceUnavailable:
		return decidedNot
	case row.Waits:
		return decidedOver
	}
	return decidedRefused
}

// resultOf is the outcome's name.
func resultOf(d client.Decision) string {
	return [outcomes]string{decidedOK: resultOK, decidedOver: resultOverLimit, decidedRefused: resultRefused, decidedNot: resultUnavailable}[outcomeOf(d)]
}

// add counts what was decided, and empties c.
func (m *Metrics) add(c *counts) {
	for o, n := range c {
		if n > 0 {
			m.decided[o].Add(float64(n))
		}
	}
	*c = counts{}
}
