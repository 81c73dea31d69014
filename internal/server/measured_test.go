package server_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// witness is a lease store that counts what passes, by itself.
type witness struct {
	mu    sync.Mutex
	store lease.Store
	live  map[string]lived // by holder

	granted, returned, denied, healed, renewals float64
	out, drawn                                  float64 // summed over renewals, in parts of what is allowed
	mostOut, mostDrawn                          float64
	answered                                    func(holder string)
}

// lived is a lease that may live: until its slot is over.
type lived struct {
	out, drawn float64 // tokens that the holder did not ask for at once, and what may pile up; micro-tokens a second
	until      time.Time
}

func (s *witness) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := s.store.Renew(ctx, renewals)
	for i := range answers {
		r, g := &renewals[i], &answers[i].Grant
		if answers[i].Err != nil {
			continue
		}
		s.renewals++
		s.granted += float64(g.Tokens + g.Next)
		s.returned += float64(r.Held)
		if g.DenyFor > 0 {
			s.denied++
		}
		if r.Generation > 0 && g.Generation > r.Generation {
			s.healed++
		}
		s.live[r.Holder] = lived{
			out: float64(max(g.Tokens-r.Waiting, 0) + g.Pile), drawn: float64(g.Trickle),
			until: time.UnixMicro(g.ExpirySlot * lease.SlotLen),
		}
		var out, drawn float64
		for _, l := range s.live {
			if time.Now().Before(l.until) {
				out += l.out
				drawn += l.drawn
			}
		}
		rate, burst := r.Spec.Flow()
		out, drawn = out*limit.Micro/float64(burst), drawn/float64(rate)
		s.out, s.drawn = s.out+out, s.drawn+drawn
		s.mostOut, s.mostDrawn = max(s.mostOut, out), max(s.mostDrawn, drawn)
		if s.answered != nil {
			s.answered(r.Holder)
		}
	}
	return answers
}

// forget loses everything, as a store does that fails over to an empty replica.
func (s *witness) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store = memstore.New()
	clear(s.live)
}

// What the metrics say of a limit is what a count of the calls and decisions themselves comes to: tokens and trickles
// out in parts of what is allowed, leases declared again after a loss, and units admitted out of contact.
func TestMetricsAreWhatIsCounted(t *testing.T) {
	inWorld(t, noon, `
plans: {p: {limits: [{name: calls, rate: 1000/second, burst: 500, meter: calls}]}}
default_plan: p
`, func(t *testing.T, w *world) {
		s := &witness{store: w.leases, live: make(map[string]lived)}
		w.stop()
		w.leases = s
		w.start()
		var cut atomic.Bool
		a, b, lost := w.gateway("a"), w.gateway("b"), w.gateway("lost", w.cut(&cut))
		var admitted atomic.Int64 // by lost
		drive := func(d time.Duration) {
			for range d / (2 * time.Millisecond) {
				allow(1, acme(), a, b)
				admitted.Add(allow(1, acme(), lost))
				time.Sleep(2 * time.Millisecond)
			}
		}
		counted := func(when string) {
			t.Helper()
			s.mu.Lock()
			defer s.mu.Unlock()
			for name, want := range map[string]float64{
				"granted_tokens_total": s.granted, "returned_tokens_total": s.returned, "deny_grants_total": s.denied, "healed_leases_total": s.healed,
			} {
				if got := w.total("quota_server_" + name); got != want {
					t.Errorf("%s: %s is %v, and %v were counted", when, name, got, want)
				}
			}
			for name, want := range map[string]float64{"out_ratio": s.out, "trickle_ratio": s.drawn} {
				n, sum := w.observed("quota_server_" + name)
				if n != s.renewals || math.Abs(sum-want) > 1e-6*want {
					t.Errorf("%s: %s has %v over %v renewals, and %v over %v were counted", when, name, sum, n, want, s.renewals)
				}
			}
			if s.mostOut > 1.05 || s.mostDrawn > 1.05 {
				t.Errorf("%s: tokens out were up to %.3f and trickles %.3f of what is allowed, want 1.05 at most", when, s.mostOut, s.mostDrawn)
			}
		}
		drive(10 * time.Second)
		counted("steady")
		if s.healed != 0 || s.drawn == 0 || s.out == 0 {
			t.Errorf("before any loss %v leases were healed, trickles out %v, tokens %v", s.healed, s.drawn, s.out)
		}

		s.forget()
		drive(15 * time.Second)
		counted("after a loss")
		if s.healed != 3 {
			t.Errorf("%v leases were declared again, want the 3 that lived", s.healed)
		}

		var last, first int64 // what lost had admitted at its last answer before it was cut off, and at the first after
		s.mu.Lock()
		s.answered = func(holder string) {
			switch {
			case !strings.HasPrefix(holder, "lost/"):
			case !cut.Load() && first == 0:
				last = admitted.Load()
			case first < 0:
				first = admitted.Load()
			}
		}
		s.mu.Unlock()
		drive(time.Second)
		if got := lost.Stats().OutageUnits; got != 0 {
			t.Errorf("in contact %d units are said to be admitted out of it", got)
		}
		cut.Store(true)
		drive(20 * time.Second)
		s.mu.Lock()
		first = -1 // the next answer's
		s.mu.Unlock()
		cut.Store(false)
		drive(5 * time.Second)
		s.mu.Lock()
		away := first - last
		s.mu.Unlock()
		if got := lost.Stats().OutageUnits; away < 5000 || got < away-away/100 || got > away+away/100 {
			t.Errorf("%d units are said to be admitted out of contact, and %d were counted from the last answer to the next", got, away)
		}
		w.shut(a, b, lost)
		counted("in the end")
	})
}

// total is the sum of a counter's series, observed the count and the sum of a histogram's.
func (w *world) total(name string) (sum float64) {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name {
				sum += m.Counter.GetValue()
			}
		}
	}
	return sum
}

func (w *world) observed(name string) (n, sum float64) {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name {
				n += float64(m.Histogram.GetSampleCount())
				sum += m.Histogram.GetSampleSum()
			}
		}
	}
	return n, sum
}
