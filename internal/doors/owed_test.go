package doors

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/pkg/client"
)

// hesitant is a client that cannot book yet, for that reason.
type hesitant struct {
	EnvoyClient
	why    atomic.Int64 // client.Reason; 0 where it can
	booked atomic.Int64
}

func (h *hesitant) Book(_ context.Context, requests ...client.Request) error {
	if why := h.why.Load(); why != 0 {
		return &client.NotBookedError{Reason: client.Reason(why)}
	}
	for _, r := range requests {
		h.booked.Add(r.Units)
	}
	return nil
}

func (h *hesitant) PolicyVersion() int64 { return 1 }

func (h *hesitant) Gateways() []client.Gateway {
	return []client.Gateway{{Domain: "edge", Descriptors: map[string]string{"tenant": "tenant"}, After: []string{"used"}}}
}

func (h *hesitant) AllowTogether(_ context.Context, requests []client.Request) []client.Decision {
	decisions := make([]client.Decision, len(requests))
	for i := range decisions {
		decisions[i] = client.Decision{Allowed: true, Reason: client.ReasonUnlimited}
	}
	return decisions
}

// What Envoy reports while the agent cannot book it is booked when it can: Envoy does not send it again. What has no room to wait is an
// error, and what is left at the end is logged.
func TestReportsAreBookedWhenTheyCanBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(hesitant)
		h.why.Store(int64(client.ReasonUnknown))
		var logged bytes.Buffer
		e := NewEnvoy(h, newMetrics(t), slog.New(slog.NewTextHandler(&logged, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		go e.Run(ctx)
		report := edge(own(descriptor("tenant=acme", "used="), 7))
		kept := int64(0)
		for ; kept < maxOwedOf; kept++ {
			if _, err := e.ShouldRateLimit(ctx, report); status.Code(err) == codes.Unavailable {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if kept%100 == 0 {
				time.Sleep(owedEvery / 100) // what is being booked takes its room too
			}
		}
		if kept < 1000 || kept == maxOwedOf {
			t.Errorf("%d reports of a tenant have room to wait", kept)
		}
		other := edge(own(descriptor("tenant=other", "used="), 7))
		if _, err := e.ShouldRateLimit(ctx, other); err != nil {
			t.Errorf("a tenant's reports leave no room for another's: %v", err)
		}
		kept++
		if n := strings.Count(logged.String(), "tenant=acme units=7"); n != 1 {
			t.Errorf("one report has no room to wait, and the log says %q", &logged)
		}
		logged.Reset()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := h.booked.Load(); n != 0 {
			t.Errorf("%d units are booked that cannot be", n)
		}
		h.why.Store(0)
		time.Sleep(2 * owedEvery)
		synctest.Wait()
		if want := 7 * kept; h.booked.Load() != want {
			t.Errorf("%d units are booked, want %d", h.booked.Load(), want)
		}
		h.why.Store(int64(client.ReasonOverloaded))
		if _, err := e.ShouldRateLimit(ctx, report); err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		if e.End(); !strings.Contains(logged.String(), "tenant=acme units=7") {
			t.Errorf("a report of 7 units is lost, and the log says %q", &logged)
		}
	})
}

// A report that is refused for good is lost to all but the log and the count: Envoy ignores the answer to it.
func TestRefusedReportsAreLogged(t *testing.T) {
	for why, want := range map[client.Reason]codes.Code{
		client.ReasonNoPlan:  codes.FailedPrecondition,
		client.ReasonInvalid: codes.InvalidArgument,
		client.ReasonClosed:  codes.Unavailable,
	} {
		t.Run(why.String(), func(t *testing.T) {
			h := new(hesitant)
			h.why.Store(int64(why))
			var logged bytes.Buffer
			registry := prometheus.NewRegistry()
			m, err := NewMetrics(registry)
			if err != nil {
				t.Fatal(err)
			}
			e := NewEnvoy(h, m, slog.New(slog.NewTextHandler(&logged, nil)))
			_, err = e.ShouldRateLimit(t.Context(), edge(own(descriptor("tenant=acme", "used="), 7)))
			if status.Code(err) != want {
				t.Errorf("got %v, want %v", err, want)
			}
			if !strings.Contains(logged.String(), "tenant=acme units=7") {
				t.Errorf("a report of 7 units is lost, and the log says %q", &logged)
			}
			if n := lostCount(t, registry); n != 1 {
				t.Errorf("a report is lost, and %v are counted", n)
			}
		})
	}
}

// While no policy is known a report cannot be told from a question: that some may be lost is said each second, and at the end.
func TestReportsWithoutAPolicyAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		e := NewEnvoy(new(ignorant), newMetrics(t), slog.New(slog.NewTextHandler(&logged, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		go e.Run(ctx)
		ask := func() {
			t.Helper()
			if _, err := e.ShouldRateLimit(ctx, edge(own(descriptor("tenant=acme", "used="), 7))); status.Code(err) != codes.Unavailable {
				t.Fatalf("without a policy: got %v, want UNAVAILABLE", err)
			}
		}
		ask()
		ask()
		time.Sleep(3 * owedEvery)
		synctest.Wait()
		if got := logged.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "calls=2") {
			t.Errorf("two calls may have lost reports, and the log says %q", got)
		}
		cancel()
		synctest.Wait()
		logged.Reset()
		ask()
		if e.End(); !strings.Contains(logged.String(), "calls=1") {
			t.Errorf("one more may have by the end, and the log says %q", &logged)
		}
	})
}

// ignorant is a client that knows no policy.
type ignorant struct{ hesitant }

func (*ignorant) PolicyVersion() int64 { return 0 }

// lostCount is the reports that are counted as lost.
func lostCount(t *testing.T, registry *prometheus.Registry) (n float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == resultLost {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}
