package server_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
)

// forgetful is a lease store that forgets everything, and says so to whoever serves it unless that is untold.
type forgetful struct {
	untold bool

	mu     sync.Mutex
	store  *memstore.Store
	before int64
	said   chan struct{} // closed at the next loss
}

func newForgetful() *forgetful {
	return &forgetful{store: memstore.New(), before: 1, said: make(chan struct{})}
}

func (s *forgetful) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store = memstore.New()
	if !s.untold {
		s.before = time.Now().UnixMicro()
		close(s.said)
		s.said = make(chan struct{})
	}
}

func (s *forgetful) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.Renew(ctx, renewals)
}

func (s *forgetful) Run(ctx context.Context, _ func(lease.Loss), forgotBefore func(int64)) error {
	for {
		s.mu.Lock()
		before, said := s.before, s.said
		s.mu.Unlock()
		forgotBefore(before)
		select {
		case <-ctx.Done():
			return nil
		case <-said:
		}
	}
}

// A gateway has a lease of two minutes for most of the rate, the lease store forgets it, and from then on another wants
// all of the rate. All gateways are told, whichever server they follow, so that the bucket is shared out as it was:
// what is admitted beside that is one burst. A control that nobody is told has most of the rate twice.
func TestALossIsToldToEveryGateway(t *testing.T) {
	for _, untold := range []bool{false, true} {
		inWorld(t, noon, `
plans: {p: {limits: [{name: calls, rate: 1000/second, burst: 2000}]}}
default_plan: p
`, func(t *testing.T, w *world) {
			s := newForgetful()
			s.untold = untold
			w.stop()
			w.leases = s
			w.start()
			steady := w.gateway("steady")
			defer w.another()()
			greedy := w.gateway("greedy") // follows the other server
			admitted := int64(0)
			drive := func(d time.Duration, wants int) {
				for range d / (10 * time.Millisecond) {
					admitted += allow(7, acme(), steady) + allow(wants, acme(), greedy)
					time.Sleep(10 * time.Millisecond)
				}
			}
			drive(100*time.Second, 0)
			s.forget()
			time.Sleep(10 * time.Millisecond) // the new bucket is not proven to be any but new
			admitted = 0
			const seconds = 30
			drive(seconds*time.Second, 30)
			over := float64(admitted-seconds*1000) / 1000 // in seconds of the rate
			if most := 2*2.0 + 0.05*(seconds+2); !untold && over > most {
				t.Errorf("%.1f seconds' rate above it in %d s after a loss, want no more than two bursts and epsilon, %.1f", over, seconds, most)
			}
			if untold && over < 10 {
				t.Errorf("with nobody told, %.1f seconds' rate above it in %d s; the test shows nothing", over, seconds)
			}
			t.Logf("untold %v: %.1f seconds' rate above it in %d s", untold, over, seconds)
			w.shut(steady, greedy)
		})
	}
}

// An embedded server starts anew, and with it a lease store that knows nothing: gateways that it served before renew
// what they hold as soon as they follow it again.
func TestALossByARestart(t *testing.T) {
	inWorld(t, noon, `
plans: {p: {limits: [{name: calls, rate: 1000/second, burst: 2000}]}}
default_plan: p
`, func(t *testing.T, w *world) {
		g := w.gateway("g")
		for range 100 * 50 {
			allow(10, acme(), g)
			time.Sleep(20 * time.Millisecond)
		}
		w.stop()
		anew := memstore.New()
		w.leases = anew
		w.start()
		for range 3 * 50 {
			allow(10, acme(), g)
			time.Sleep(20 * time.Millisecond)
		}
		if anew.Buckets() != 1 {
			t.Error("3 s after the restart the lease of before is not declared")
		}
		w.shut(g)
	})
}
