package load

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

func TestGatewaysKeepTheRate(t *testing.T) {
	for _, rate := range []float64{1, 7, 1000, 50_000} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			l := &load{began: time.Now(), track: make([]uint32, 1<<10)}
			g := newGateway(nil, rate, 0.5, 0)
			var group sync.WaitGroup
			workers := make([]worker, 3)
			for i := range workers {
				group.Go(func() { workers[i].drive(ctx, g, nothing{}, l) })
			}
			group.Wait()
			total, from := int64(0), make(map[int64]bool)
			for _, w := range workers {
				for _, r := range w.records {
					total += r.allowed()
					from[r.at] = true
				}
			}
			if want := int64(rate * 10); total < want-4*int64(g.n) || total > want+4*int64(g.n) {
				t.Errorf("rate %.0f: got %d requests in ten seconds, want %d", rate, total, want)
			}
			if total != g.allowed.Load() {
				t.Errorf("rate %.0f: %d told, %d recorded", rate, g.allowed.Load(), total)
			}
		})
	}
}

// A gateway that was held up for a second catches up on a tenth of it.
func TestAGatewayForgetsAStall(t *testing.T) {
	g, track := newGateway(nil, 1000, 0, 0), make([]uint32, 1<<10)
	made := 0
	for {
		_, due := g.claim(1_000_000, track)
		if due > 1_000_000 {
			break
		}
		made += g.n
	}
	if made < 95 || made > 100+g.n {
		t.Errorf("after a stall of a second: got %d requests, want about 100", made)
	}
}

// slow waits for the server at each request.
type slow struct {
	w *worker
	g *gateway
	l *load
}

func (s slow) Allow(context.Context, ...client.Attribute) client.Decision {
	s.w.wait(s.g, s.l)
	time.Sleep(time.Second)
	return client.Decision{Allowed: true}
}

// fifth is slow at every fifth request.
type fifth struct {
	slow
	n int
}

func (f *fifth) Allow(ctx context.Context, a ...client.Attribute) client.Decision {
	if f.n++; f.n%5 == 0 {
		return f.slow.Allow(ctx, a...)
	}
	return client.Decision{Allowed: true}
}

// Requests are recorded as of when they were made, and one that waited of when it was answered, whatever others of their chunk waited for.
func TestWaitsMoveNoOtherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &load{began: time.Now(), track: make([]uint32, 1<<10)}
		for i := range l.track {
			l.track[i] = uint32(i)
		}
		g := newGateway(nil, 1200, 0, 0)
		var w worker
		<-g.turn
		w.chunk(t.Context(), t.Context(), g, &fifth{slow: slow{w: &w, g: g, l: l}}, l)
		var got []int64 // by request
		for i := range w.records {
			w.records[i].each(l.track, func(tenant uint32, at int64, admitted bool) {
				if int(tenant) != len(got) || !admitted {
					t.Errorf("request %d: got tenant %d, admitted %t", len(got), tenant, admitted)
				}
				got = append(got, at/1e6)
			})
		}
		if want := []int64{0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2}; !slices.Equal(got, want) {
			t.Errorf("at the seconds %v, want %v", got, want)
		}
	})
}

// While a request waits for the server another worker makes those that follow, and one at a time.
func TestOneWorkerAsksWhileAnotherWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l := &load{began: time.Now(), track: make([]uint32, 1<<10)}
		g := newGateway(nil, 1000, 0, 0)
		workers := make([]worker, 2)
		var group sync.WaitGroup
		group.Go(func() { workers[0].drive(ctx, g, slow{w: &workers[0], g: g, l: l}, l) })
		synctest.Wait()
		group.Go(func() { workers[1].drive(ctx, g, nothing{}, l) })
		group.Wait()
		if n := g.allowed.Load(); n < 900 || n > 1100 {
			t.Errorf("got %d requests in a second in which one waited, want about 1,000", n)
		}
		if len(g.turn) != 1 {
			t.Errorf("the turn is had by nobody, and free %d times", len(g.turn))
		}
	})
}
