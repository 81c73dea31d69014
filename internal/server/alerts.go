package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// maxAlertWatches bounds the streams of events, and a quarter of it those of one address: each asks the store.
const maxAlertWatches = 64

// watchAlertsEvery is how often a stream of events looks for new ones.
const watchAlertsEvery = time.Second

// alertService tells of events, and has them delivered again.
type alertService struct {
	quotav1.UnimplementedAlertServiceServer
	store    alert.Store
	webhooks func() ([]policy.Webhook, bool)
	watches  listen.Streams
	stopping <-chan struct{}
}

// alertStore is the part of a policy store that keeps events; nil where it keeps none.
func alertStore(s policy.Store) alert.Store {
	store, _ := s.(alert.Store)
	return store
}

// newAlerts builds what evaluates and delivers.
func (s *Server) newAlerts(statements *statementService, store alert.Store) (*alert.Runner, error) {
	c := &s.config
	raised := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quota_server_alerts_total", Help: "Events that this server made, by kind."}, []string{"kind"})
	sent := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quota_server_alert_deliveries_total", Help: "Attempts at webhooks, by result: delivered, failed (it is tried again) or dead."}, []string{"result"})
	caps := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quota_server_spending_caps_total", Help: "Spending caps that this server put in force or lifted, by action: stop, throttle or lift."}, []string{"action"})
	failed := prometheus.NewCounter(prometheus.CounterOpts{Name: "quota_server_alert_errors_total", Help: "Tenants that could not be looked at for alerts, each time."})
	looks := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "quota_server_alert_look_seconds", Help: "What a look at the tenants with new usage took the server that leads.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2, 4, 8, 16, 32, 64},
	})
	age := &lookGauge{store: store, books: c.Books, desc: prometheus.NewDesc("quota_server_alert_age_seconds", "How long the oldest block that was not looked at for alerts has been there; 0 for none. All servers tell the same.", nil, nil)}
	waiting := &deliveryGauge{store: store, desc: prometheus.NewDesc("quota_server_alert_deliveries", "Deliveries by state: pending or dead.", []string{"state"}, nil)}
	outages := &outageGauge{store: store, desc: prometheus.NewDesc("quota_server_webhook_outage_seconds", "For how long deliveries to a webhook that fails have waited; none for one that works.", []string{"webhook"}, nil)}
	for _, m := range []prometheus.Collector{outages, raised, sent, caps, failed, looks, age, waiting} {
		if err := c.Registerer.Register(m); err != nil {
			return nil, err
		}
	}
	reach := alert.Public
	if c.PrivateWebhooks {
		reach = alert.Private
	}
	local, outside := http.RoundTripper(alert.NewTransport(alert.Loopback)), http.RoundTripper(alert.NewTransport(reach))
	if c.Webhooks != nil {
		local, outside = c.Webhooks, c.Webhooks
	}
	told := map[string]string{} // what was logged of each tenant, by one goroutine
	return &alert.Runner{
		Policy: c.Policy, Holder: rand.Text(), Log: c.Log,
		Evaluator: &alert.Evaluator{
			Store: store, Policy: c.Policy, Usage: c.Books, Now: time.Now, Spending: statements.spending,
			InForce: func() (*policy.Document, *limit.Rules) {
				now := s.view.Current()
				return now.Document, now.Rules
			},
			Looked: func(took time.Duration) { looks.Observe(took.Seconds()) },
			Raised: func(e *alert.Event) {
				raised.WithLabelValues(e.Kind).Inc()
				c.Log.Info("alert", "number", e.Number, "kind", e.Kind, "alert", e.Alert, "tenant", e.Tenant, "threshold", policy.Percent(e.Threshold), "period", e.Period, "used", e.Words(e.Used), "of", e.Words(e.Of))
			},
			Turned: func(tenant string, capped policy.Capped) {
				action := capped.At
				if action == "" {
					action = "lift"
				}
				caps.WithLabelValues(action).Inc()
				c.Log.Warn("spending cap", "tenant", tenant, "action", action, "period", capped.Period)
				s.view.Wake()
			},
			Failed: func(tenant string, err error) {
				failed.Inc()
				if len(told) == maxFaulty {
					clear(told)
				}
				if told[tenant] != err.Error() {
					told[tenant] = err.Error()
					c.Log.Error("a tenant cannot be looked at for alerts", "tenant", tenant, "error", err)
				}
			},
		},
		Deliverer: &alert.Deliverer{
			Store: store, Webhooks: s.webhooks, Secrets: alert.Secrets, Transport: local, Outside: outside, Now: time.Now, Log: c.Log,
			Sent: func(result string) { sent.WithLabelValues(result).Inc() },
		},
	}, nil
}

// webhooks are those of the policy in force, and whether that is known.
func (s *Server) webhooks() ([]policy.Webhook, bool) {
	d := s.view.Current().Document
	if d == nil {
		return nil, false
	}
	return d.Webhooks(), true
}

// deliveryGauge counts deliveries when it is asked.
type deliveryGauge struct {
	store alert.Store
	desc  *prometheus.Desc
}

// Describe is prometheus.Collector's.
func (g *deliveryGauge) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// Collect is prometheus.Collector's. While the store is away there are no figures.
func (g *deliveryGauge) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	pending, dead, err := g.store.Count(ctx)
	if err != nil {
		return
	}
	to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(pending), alert.Pending)
	to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(dead), alert.Dead)
}

// outageGauge tells of webhooks that fail when it is asked. They are few: policy.MaxWebhooks.
type outageGauge struct {
	store alert.Store
	desc  *prometheus.Desc
}

// Describe is prometheus.Collector's.
func (g *outageGauge) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// Collect is prometheus.Collector's. While the store is away there are no figures.
func (g *outageGauge) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	all, err := g.store.Outages(ctx)
	if err != nil {
		return
	}
	for _, o := range all {
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, time.Since(o.Open).Seconds(), o.Webhook)
	}
}

// lookGauge tells how far looks are behind when it is asked: by what is stored, so that it
// grows as well where no server leads.
type lookGauge struct {
	store alert.Store
	books ledger.Books
	desc  *prometheus.Desc
}

// Describe is prometheus.Collector's.
func (g *lookGauge) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// Collect is prometheus.Collector's. While the stores are away there is no figure.
func (g *lookGauge) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	marks, err := g.store.Marks(ctx)
	if err != nil {
		return
	}
	block, err := g.books.After(ctx, max(0, marks.Height))
	if err != nil {
		return
	}
	age := 0.0
	if block.Height > 0 {
		age = max(0, time.Since(block.Folded).Seconds())
	}
	to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, age)
}

// ListAlerts pages through events.
func (s *alertService) ListAlerts(ctx context.Context, req *quotav1.ListAlertsRequest) (*quotav1.ListAlertsResponse, error) {
	q := alert.Query{After: req.After, Forward: req.Forward, N: rpc.Page(req.PageSize), Tenant: req.Tenant, Alert: req.Alert, State: req.State}
	if last := wire.PageNumber(req.PageToken); req.Forward {
		q.After = max(q.After, last)
	} else {
		q.Before = last
	}
	all, err := s.store.Events(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &quotav1.ListAlertsResponse{}
	for i := range all {
		resp.Alerts = append(resp.Alerts, alertToProto(&all[i]))
	}
	if len(all) == q.N {
		resp.NextPageToken = wire.PageToken(all[q.N-1].Number)
	}
	return resp, nil
}

// WatchAlerts sends events as they come.
func (s *alertService) WatchAlerts(req *quotav1.WatchAlertsRequest, stream quotav1.AlertService_WatchAlertsServer) error {
	end, err := s.watches.Begin(stream.Context())
	if err != nil {
		return err
	}
	defer end()
	send := rpc.Patient(stream.Context(), stream.Send)
	ctx, cancel := rpc.Until(stream.Context(), s.stopping)
	defer cancel()
	tick := time.NewTicker(watchAlertsEvery)
	defer tick.Stop()
	for after := req.After; ; {
		all, err := s.store.Events(ctx, alert.Query{After: after, Forward: true, N: policy.MaxPage, Tenant: req.Tenant})
		if err != nil {
			if ctx.Err() != nil && stream.Context().Err() == nil {
				return nil // the server stops
			}
			return err
		}
		for i := range all {
			after = all[i].Number
			if err := send(&quotav1.WatchAlertsResponse{Alert: alertToProto(&all[i])}); err != nil {
				return err
			}
		}
		if len(all) == policy.MaxPage {
			continue
		}
		select {
		case <-ctx.Done():
			return stream.Context().Err()
		case <-tick.C:
		}
	}
}

// GetAlert is one event.
func (s *alertService) GetAlert(ctx context.Context, req *quotav1.GetAlertRequest) (*quotav1.GetAlertResponse, error) {
	e, err := s.store.Event(ctx, req.Number)
	if err != nil {
		return nil, err
	}
	return &quotav1.GetAlertResponse{Alert: alertToProto(&e)}, nil
}

// RetryAlert has deliveries begun anew.
func (s *alertService) RetryAlert(ctx context.Context, req *quotav1.RetryAlertRequest) (*quotav1.RetryAlertResponse, error) {
	e, err := s.store.Retry(ctx, authn.PrincipalOf(ctx).Name, req.Number, req.Webhook)
	if err != nil {
		return nil, err
	}
	return &quotav1.RetryAlertResponse{Alert: alertToProto(&e)}, nil
}

// TestWebhook makes an event for one webhook.
func (s *alertService) TestWebhook(ctx context.Context, req *quotav1.TestWebhookRequest) (*quotav1.TestWebhookResponse, error) {
	if all, _ := s.webhooks(); !slices.ContainsFunc(all, func(w policy.Webhook) bool { return w.Name == req.Webhook }) {
		return nil, fmt.Errorf("%w: the policy in force has no webhook %s", fault.ErrNotFound, limit.Quote(req.Webhook))
	}
	id := "alr_" + rand.Text()
	raised, err := s.store.Raise(ctx, []alert.Found{{Events: []alert.Event{{ID: id, Kind: alert.KindTest, Alert: policy.TestName, Period: id, Webhooks: []string{req.Webhook}}}}})
	if err != nil {
		return nil, err
	}
	if len(raised) != 1 {
		return nil, errors.New("the test was not kept")
	}
	out, err := s.GetAlert(ctx, &quotav1.GetAlertRequest{Number: raised[0].Number})
	return &quotav1.TestWebhookResponse{Alert: out.GetAlert()}, err
}

func alertToProto(e *alert.Event) *quotav1.Alert {
	out := &quotav1.Alert{
		Number: e.Number, Id: e.ID, Kind: e.Kind, Alert: e.Alert, Tenant: e.Tenant, Plan: e.Plan, Limit: e.Limit, Period: e.Period,
		Used: e.Words(e.Used), Of: e.Words(e.Of), Action: e.Action, Height: e.Height, AtMs: rpc.Millis(e.At),
	}
	if e.Kind == alert.KindTest {
		out.Period = ""
	} else {
		out.Threshold = policy.Percent(e.Threshold)
	}
	for _, d := range e.Deliveries {
		p := &quotav1.Delivery{Webhook: d.Webhook, State: d.State, Attempts: int32(d.Attempts), TriedMs: rpc.Millis(d.Tried), Status: int32(d.Status), Error: d.Error}
		if d.State == alert.Pending {
			p.NextMs = rpc.Millis(d.Next)
		}
		out.Deliveries = append(out.Deliveries, p)
	}
	return out
}
