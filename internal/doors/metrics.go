package doors

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/headers"
	"github.com/f4ee788f/quota/pkg/client"
)

// Doors, as metrics name them.
const (
	doorCheck    = "check"
	doorEnvoy    = "envoy"
	doorDecide   = "decide"
	doorJSON     = "json"
	doorKuadrant = "kuadrant"
)

// Results, as metrics name them.
const (
	resultOK          = "ok"
	resultBooked      = "booked"   // what Envoy reports after the fact
	resultOwed        = "owed"     // likewise, where it cannot be booked yet
	resultLost        = "lost"     // and what can never be
	resultRefunded    = "refunded" // negative hits
	resultKept        = "kept"     // of which some stay billed
	resultOverLimit   = "over_limit"
	resultRefused     = "refused"
	resultUnavailable = "unavailable"
	resultBadRequest  = "bad_request"
	resultReplayed    = "replayed" // the answer that an Idempotency-Key had before
	resultNotFound    = "not_found"
	resultConflict    = "conflict"
)

// Metrics counts what doors answer.
type Metrics struct {
	answers *prometheus.CounterVec
	streams prometheus.Gauge
	frames  prometheus.Counter
	// These are the counters of decisions, by outcome. They are looked up once, because a look-up costs as much as the
	// decision.
	decided, json [outcomes]prometheus.Counter // of streams; of the JSON door
	calls         *prometheus.CounterVec
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
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_agent_calls_total",
			Help: "Calls in JSON, by path, and unary calls of DecisionService, by name; and their results.",
		}, []string{"route", "result"}),
	}
	for o, result := range results {
		m.decided[o] = m.answers.WithLabelValues(doorDecide, result)
		m.json[o] = m.answers.WithLabelValues(doorJSON, result)
	}
	for _, c := range []prometheus.Collector{m.answers, m.streams, m.frames, m.calls} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// called counts a call of the JSON door.
func (m *Metrics) called(route, result string) { m.calls.WithLabelValues(route, result).Inc() }

// callResult is the result of a call that was answered with an error.
func callResult(status int) string {
	switch status {
	case http.StatusNotFound:
		return resultNotFound
	case http.StatusConflict, http.StatusUnprocessableEntity:
		return resultConflict
	case http.StatusServiceUnavailable:
		return resultUnavailable
	}
	return resultBadRequest
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

// results are the outcomes' names.
var results = [outcomes]string{decidedOK: resultOK, decidedOver: resultOverLimit, decidedRefused: resultRefused, decidedNot: resultUnavailable}

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
func resultOf(d client.Decision) string { return results[outcomeOf(d)] }

// add counts what was decided, and empties c.
func (m *Metrics) add(c *counts) { m.addTo(&m.decided, c) }

// addTo is add to the counters of one door.
func (m *Metrics) addTo(to *[outcomes]prometheus.Counter, c *counts) {
	for o, n := range c {
		if n > 0 {
			to[o].Add(float64(n))
		}
	}
	*c = counts{}
}
