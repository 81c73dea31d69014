package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/session"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

// Whatever servers do, and however policies and overrides change meanwhile: when that is over every bucket is leased again, no request
// waits for one that nobody looks at, and what was admitted is billed, once.
func TestAllIsWellOnceServersAre(t *testing.T) {
	for seed := range uint64(unraced.Some(4)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { unrest(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func unrest(t *testing.T, rng *rand.Rand) {
	most := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
	policy := func(version int64, limits int) *limit.Policy {
		each := []limit.Limit{
			{Name: "each", Rate: perSecond(20 + rng.Int64N(20)), Burst: 40, By: []string{"user"}, Meter: "m"},
			{Name: "window", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 300, Per: 10 * time.Second}, By: []string{"user"}},
			{Name: "paced", Algorithm: limit.LeakyBucket, Rate: perSecond(50), Burst: 5, By: []string{"lane"}, Match: []limit.Match{{Attribute: "lane", Patterns: []string{"*"}}}},
		}
		return plans(version, each[:limits]...)
	}
	bubble(t, policy(1, 3), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithMaxWait(2*time.Second), WithIdle(5*time.Second), WithReportInterval(2*time.Second))
		users := 50 + rng.IntN(300)
		var over atomic.Bool
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for u := range users {
			r := rand.New(rand.NewPCG(rng.Uint64(), 2))
			wg.Go(func() {
				for !over.Load() {
					time.Sleep(time.Duration(r.Int64N(int64(300 * time.Millisecond))))
					if r.IntN(200) == 0 {
						time.Sleep(12 * time.Second) // its buckets are dropped meanwhile
					}
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					ask, a := c.Allow, []Attribute{tenant("a"), {"user", fmt.Sprint(u)}}
					if r.IntN(6) == 0 {
						ask, a = c.Wait, append(a, Attribute{"lane", fmt.Sprint(u % 5)})
					}
					if ask(ctx, a...).Allowed {
						admitted.Add(1)
					}
					cancel()
				}
			})
		}
		version := int64(1)
		for range 25 {
			time.Sleep(most(2 * time.Second))
			switch rng.IntN(9) {
			case 0:
				s.set(func(f *fake) { f.delay = most(1500 * time.Millisecond) })
			case 1:
				s.set(func(f *fake) { f.hangs = rng.IntN(4) })
			case 2:
				s.set(func(f *fake) { f.down = true })
				time.Sleep(most(3 * time.Second))
				s.set(func(f *fake) { f.down = false })
			case 3:
				s.set(func(f *fake) { f.dark = !f.dark })
			case 4:
				s.set(func(f *fake) { f.work = most(8 * time.Millisecond) })
			case 5:
				version++
				s.apply(policy(version, 1+2*rng.IntN(2)))
			case 6:
				own := limit.Limit{Name: "each", Algorithm: limit.TokenBucket, Rate: perSecond(5 + rng.Int64N(50)), Burst: 30, By: []string{"user"}, Meter: "m", EpsilonPPM: limit.DefaultEpsilonPPM}
				s.tenant(limit.Tenant{ID: "a", Plan: "p", Overrides: []limit.Limit{own}[:rng.IntN(2)]})
			case 7:
				s.restart()
			case 8:
				s.set(func(f *fake) { f.delay, f.work, f.hangs = 0, 0, 0 })
			}
		}
		s.set(func(f *fake) { f.delay, f.work, f.hangs, f.dark, f.busy = 0, 0, 0, false, time.Now() })
		s.apply(policy(version+1, 3))
		s.tenant(limit.Tenant{ID: "a", Plan: "p"})
		time.Sleep(15 * time.Second)
		c.session.Ask(func(l *session.Loop) {
			waits := make(map[*agent.Entry]bool)
			for _, e := range l.Waiting() {
				waits[e] = true
			}
			c.reg.Each(func(e *agent.Entry) {
				if p := e.Plan(c.reg.Now()); !e.Flying && !waits[e] && p.Renew() < c.reg.Now()-time.Second.Microseconds() {
					t.Errorf("nobody looks at a bucket of %s that is to be renewed", e.Limit())
				}
			})
		})
		over.Store(true)
		wg.Wait()
		time.Sleep(3 * time.Second)
		for u := range users {
			if d := c.Allow(t.Context(), tenant("a"), Attribute{"user", fmt.Sprint(u)}); !d.Allowed {
				t.Errorf("user %d is denied at last: %v, by %q", u, d.Reason, d.Limit())
			} else {
				admitted.Add(1)
			}
		}
		shut(t, c)
		if got := s.billed(nil); got != admitted.Load() {
			t.Errorf("%d units billed, want the %d that were admitted", got, admitted.Load())
		}
	})
}
