package alerts

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	"github.com/f4ee788f/quota/internal/server/view"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// maxAlertWatches bounds the streams of events. One address may have a quarter of them. Each stream queries the store.
const maxAlertWatches = 64

// maxFailing is how many tenants' faults are kept, so that each is logged once; beyond, they are logged again.
const maxFailing = 1000

// watchAlertsEvery is how often a stream of events looks for new ones.
const watchAlertsEvery = time.Second

// Service tells of events, and has them delivered again.
type Service struct {
	quotav1.UnimplementedAlertServiceServer
	store    alert.Store
	webhooks func() ([]policy.Webhook, bool)
	watches  listen.Streams
	stopping <-chan struct{}
}

// Config is what alerts are made of. Books are required.
type Config struct {
	Store    alert.Store
	Books    ledger.Books
	Policy   policystore.Store
	View     View
	Spending func(context.Context, []alert.Spender, alert.Sum) error
	// PrivateWebhooks lets webhooks reach private addresses.
	PrivateWebhooks bool
	Webhooks        http.RoundTripper // how webhooks are reached; nil for the network
	Stopping        <-chan struct{}
	Log             *slog.Logger
	Registerer      prometheus.Registerer
}

// View is what is in force: see view.View.
type View interface {
	Current() *view.InForce
	Wake()
}

// New returns the service, and the runner that evaluates and delivers. The caller runs it.
func New(c Config) (*Service, *alert.Runner, error) {
	raised := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quota_server_alerts_total", Help: "Events that this server made, by kind."}, []string{"kind"})
	sent := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quota_server_alert_deliveries_total", Help: "Attempts at webhooks, by result: delivered, failed (it is tried again) or dead."}, []string{"result"})
	caps := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quota_server_spending_caps_total", Help: "Spending caps that this server put in force or lifted, by action: stop, throttle or lift."}, []string{"action"})
	failed := prometheus.NewCounter(prometheus.CounterOpts{Name: "quota_server_alert_errors_total", Help: "Looks at a tenant for alerts that failed."})
	looks := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "quota_server_alert_look_seconds", Help: "How long the leader's look at the tenants with new usage took.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2, 4, 8, 16, 32, 64},
	})
	age := &lookGauge{store: c.Store, books: c.Books, desc: prometheus.NewDesc("quota_server_alert_age_seconds", "Age of the oldest block that was not looked at for alerts; 0 for none. All servers tell the same.", nil, nil)}
	waiting := &deliveryGauge{store: c.Store, desc: prometheus.NewDesc("quota_server_alert_deliveries", "Deliveries by state: pending or dead.", []string{"state"}, nil)}
	outages := &outageGauge{store: c.Store, desc: prometheus.NewDesc("quota_server_webhook_outage_seconds", "How long deliveries to a failing webhook have waited; a working webhook has no value.", []string{"webhook"}, nil)}
	for _, m := range []prometheus.Collector{outages, raised, sent, caps, failed, looks, age, waiting} {
		if err := c.Registerer.Register(m); err != nil {
			return nil, nil, err
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
	service := &Service{
		watches: listen.Streams{What: "streams that watch alerts", All: maxAlertWatches, OfPeer: maxAlertWatches / 4},
		store:   c.Store, webhooks: c.webhooks, stopping: c.Stopping,
	}
	return service, &alert.Runner{
		Policy: c.Policy, Holder: rand.Text(), Log: c.Log,
		Evaluator: &alert.Evaluator{
			Store: c.Store, Policy: c.Policy, Usage: c.Books, Now: time.Now, Spending: c.Spending,
			InForce: func() (*policy.Document, *limit.Rules) {
				now := c.View.Current()
				return now.Document, now.Rules
			},
			Looked: func(took time.Duration) { looks.Observe(took.Seconds()) },
			Raised: func(e *alert.Event) {
				raised.WithLabelValues(e.Kind).Inc()
				c.Log.Info("alert", "number", e.Number, "kind", e.Kind, "alert", e.Alert, "tenant", e.Tenant, "threshold", policy.Percent(e.Threshold), "period", e.Period, "used", e.Words(e.Used), "of", e.Words(e.Of))
			},
			Turned: func(tenant string, capped terms.Capped) {
				action := capped.At
				if action == "" {
					action = "lift"
				}
				caps.WithLabelValues(action).Inc()
				c.Log.Warn("spending cap", "tenant", tenant, "action", action, "period", capped.Period)
				c.View.Wake()
			},
			Failed: func(tenant string, err error) {
				failed.Inc()
				if len(told) == maxFailing {
					clear(told)
				}
				if told[tenant] != err.Error() {
					told[tenant] = err.Error()
					c.Log.Error("a tenant cannot be looked at for alerts", "tenant", tenant, "error", err)
				}
			},
		},
		Deliverer: &alert.Deliverer{
			Store: c.Store, Webhooks: c.webhooks, Secrets: alert.Secrets, Transport: local, Outside: outside, Now: time.Now, Log: c.Log,
			Sent: func(result string) { sent.WithLabelValues(result).Inc() },
		},
	}, nil
}

// webhooks are those of the policy in force, and whether that is known.
func (c *Config) webhooks() ([]policy.Webhook, bool) {
	d := c.View.Current().Document
	if d == nil {
		return nil, false
	}
	return d.Webhooks(), true
}

// ListAlerts pages through events.
func (s *Service) ListAlerts(ctx context.Context, req *quotav1.ListAlertsRequest) (*quotav1.ListAlertsResponse, error) {
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
func (s *Service) WatchAlerts(req *quotav1.WatchAlertsRequest, stream quotav1.AlertService_WatchAlertsServer) error {
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
		all, err := s.store.Events(ctx, alert.Query{After: after, Forward: true, N: policystore.MaxPage, Tenant: req.Tenant})
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
		if len(all) == policystore.MaxPage {
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
func (s *Service) GetAlert(ctx context.Context, req *quotav1.GetAlertRequest) (*quotav1.GetAlertResponse, error) {
	e, err := s.store.Event(ctx, req.Number)
	if err != nil {
		return nil, err
	}
	return &quotav1.GetAlertResponse{Alert: alertToProto(&e)}, nil
}

// RetryAlert starts an event's deliveries again.
func (s *Service) RetryAlert(ctx context.Context, req *quotav1.RetryAlertRequest) (*quotav1.RetryAlertResponse, error) {
	e, err := s.store.Retry(ctx, authn.PrincipalOf(ctx).Name, req.Number, req.Webhook)
	if err != nil {
		return nil, err
	}
	return &quotav1.RetryAlertResponse{Alert: alertToProto(&e)}, nil
}

// TestWebhook makes an event for one webhook.
func (s *Service) TestWebhook(ctx context.Context, req *quotav1.TestWebhookRequest) (*quotav1.TestWebhookResponse, error) {
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
