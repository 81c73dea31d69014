package bucket

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Requests take slots, wait their turn, give up, put back and finish from many goroutines, while
// the owner renews, applies answers, looks after the bucket and collects: no more
// run than the server granted, everyone is told something, and every start is counted.
func TestSlotsUnderStress(t *testing.T) {
	const slots, goroutines, rounds = 4, 8, 3_000
	b := Of(slotsLimit(slots, goroutines))
	var running, starts, denied atomic.Int64
	deliver := func(ws []*Waiter) {
		for _, w := range ws {
			w.Done(w.Verdict())
		}
	}
	start := func(n int64) {
		starts.Add(n)
		if now := running.Add(n); now > slots {
			t.Errorf("%d slots are in use, of %d", now, slots)
		}
	}
	var requests, owner sync.WaitGroup
	for g := range goroutines {
		requests.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 3))
			for range rounds {
				n := 1 + rng.Int64N(2)*rng.Int64N(2)
				ok := b.Take(n)
				if !ok {
					switch b.Ask(1, n, false, false).Outcome {
					case Admitted:
						ok = true
					case Wait:
						got := make(chan Verdict, 1)
						w := &Waiter{Units: n, Done: func(v Verdict) { got <- v }}
						served, queued := b.Join(w)
						deliver(served)
						if !queued {
							denied.Add(n)
							break
						}
						if rng.IntN(8) == 0 {
							served, was := b.Abandon(w, true)
							deliver(served)
							if was {
								denied.Add(n)
								break
							}
						}
						ok = (<-got).Outcome == Admitted
						if !ok {
							denied.Add(n)
						}
					default:
						denied.Add(n)
					}
				}
				if !ok {
					continue
				}
				if rng.IntN(6) == 0 {
					deliver(b.Cancel(n))
					continue
				}
				start(n)
				running.Add(-n)
				deliver(b.Finish(n))
			}
		})
	}
	stop := make(chan struct{})
	var collected, refused int64
	owner.Go(func() {
		rng := rand.New(rand.NewPCG(99, 3))
		server := &slotServer{level: slots, holders: make(map[int]*slotHolder)}
		for ended := false; !ended; {
			select {
			case <-stop:
				ended = true
			default:
			}
			now := time.Now().UnixMicro()
			r := b.Renew(now, false)
			g, _ := server.renew(0, r, rng)
			deliver(b.Apply(now, g))
			served, _ := b.Tick(now, false)
			deliver(served)
			a, d := collect(b)
			if a < 0 || d < 0 {
				t.Errorf("collected %d admitted and %d denied", a, d)
			}
			collected += a
			refused += d
		}
	})
	requests.Wait()
	close(stop)
	owner.Wait()
	if collected != starts.Load() || refused != denied.Load() {
		t.Errorf("collected %d starts and %d denied, want %d and %d", collected, refused, starts.Load(), denied.Load())
	}
	if s := b.State(1); s.InUse != 0 || s.Waiting != 0 || b.pending.Load() != 0 {
		t.Errorf("%d in use, %d waiting, %d pending at the end, want none", s.InUse, s.Waiting, b.pending.Load())
	}
}
