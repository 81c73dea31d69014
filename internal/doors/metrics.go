package doors

import "github.com/prometheus/client_golang/prometheus"

// Doors, as metrics name them.
const (
	doorCheck = "check"
	doorEnvoy = "envoy"
)

// Metrics counts what doors answer.
type Metrics struct {
	answers *prometheus.CounterVec
}

// NewMetrics registers the metrics; it fails when they are there already.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{answers: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quota_agent_answers_total",
		Help: "Answers to gateways, by door and result.",
	}, []string{"door", "result"})}
	if err := r.Register(m.answers); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Metrics) count(door, result string) { m.answers.WithLabelValues(door, result).Inc() }
