package client

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

// One of two servers hangs, so that every second call is not answered: it takes no others with it.
func TestACallThatHangsHoldsUpNoOthers(t *testing.T) {
	const users = 1_000
	bubble(t, plans(1, perUser()), func(t *testing.T, s *fake) {
		s.set(func(f *fake) { f.ttl, f.hangs = 2*time.Second, 2 })
		c := dial(t, s)
		var allowed, asked atomic.Int64
		var wg sync.WaitGroup
		for n := range users {
			wg.Go(func() {
				time.Sleep(time.Duration(n) * time.Millisecond)
				for range 40 {
					asked.Add(1)
					if c.Allow(t.Context(), tenant("a"), Attribute{"user", fmt.Sprint(n)}).Allowed {
						allowed.Add(1)
					}
					time.Sleep(500 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if st := c.Stats(); allowed.Load() < asked.Load()/2 {
			t.Errorf("%d of %d allowed, with %d of %d calls not answered; want most", allowed.Load(), asked.Load(), st.RenewFailed, st.RenewCalls)
		}
		s.set(func(f *fake) { f.hangs = 0 })
		shut(t, c)
	})
}

// Calls of one renewal say little of how long one of many takes: where that is as much as may be under way, it is waited for, and not
// asked again in vain.
func TestALargeCallIsWaitedForAfterSmallOnes(t *testing.T) {
	const users = 64 // as many as the first window has room for
	bubble(t, plans(1, perUser()), func(t *testing.T, s *fake) {
		s.set(func(f *fake) { f.leases, f.work = memstore.New(), 4*time.Millisecond })
		c := dial(t, s)
		for n := range 3 {
			c.Allow(t.Context(), tenant("a"), Attribute{"user", fmt.Sprint("small-", n)})
		}
		var wg sync.WaitGroup
		for n := range users {
			wg.Go(func() { c.Allow(t.Context(), tenant("a"), Attribute{"user", fmt.Sprint(n)}) })
		}
		wg.Wait()
		time.Sleep(time.Second)
		if st := c.Stats(); st.RenewFailed > 0 {
			t.Errorf("%d of %d calls were not answered, want a server that is only busy", st.RenewFailed, st.RenewCalls)
		}
		shut(t, c)
	})
}

// While the server answers nothing, or has too much to do, a lease's trickle goes on serving those who wait their turn.
func TestTurnsComeWhileNoCallIsAnswered(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*fake)
	}{
		{"away", func(f *fake) { f.delay = time.Hour }},
		{"busy", func(f *fake) { f.work = 10 * time.Millisecond }},
	} {
		t.Run(c.name, func(t *testing.T) {
			paced := limit.Limit{Name: "paced", Algorithm: limit.LeakyBucket, Rate: perSecond(50), Burst: 1}
			bubble(t, plans(1, paced, perUser()), func(t *testing.T, s *fake) {
				s.leases = memstore.New()
				client := dial(t, s, WithMaxWait(10*time.Second))
				wait := func(d time.Duration) (served int64, worst time.Duration) {
					for until := time.Now().Add(d); time.Now().Before(until); {
						began := time.Now()
						if client.Wait(t.Context(), tenant("a")).Allowed {
							served++
						}
						worst = max(worst, time.Since(began))
					}
					return served, worst
				}
				wait(10 * time.Second) // it has its trickle
				s.set(c.set)
				var wg sync.WaitGroup
				for n := range 500 {
					wg.Go(func() { client.Allow(t.Context(), tenant("a"), Attribute{"user", fmt.Sprint(n)}) })
				}
				served, worst := wait(5 * time.Second)
				if served < 200 || worst > 100*time.Millisecond {
					t.Errorf("%d served in 5 s, the longest after %v; want 250, each after 20 ms", served, worst)
				}
				s.set(func(f *fake) { f.delay, f.work = 0, 0 })
				wg.Wait()
				shut(t, client)
			})
		})
	}
}

// What is left of a window is not spent in the next one, however many buckets there are to be renewed at its edge.
func TestAnEdgeComesWhileTheServerIsBusy(t *testing.T) {
	unraced.Only(t) // what meets in it meets in TestHammer
	const users, quota = 500, 100
	window := limit.Limit{Name: "window", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: quota, Per: 30 * time.Second}, By: []string{"user"}}
	bubble(t, plans(1, window), func(t *testing.T, s *fake) {
		s.leases, s.work = memstore.New(), 4*time.Millisecond
		c := dial(t, s, WithMaxWait(10*time.Second))
		admitted := make([]atomic.Int64, users)
		// all has every user ask n times, and counts what is admitted in the window from there on.
		all := func(n int, from time.Time) {
			var wg sync.WaitGroup
			for u := range users {
				wg.Go(func() {
					for range n {
						ok := c.Allow(t.Context(), tenant("a"), Attribute{"user", fmt.Sprint(u)}).Allowed
						if now := time.Now(); ok && !now.Before(from) && now.Before(from.Add(30*time.Second)) {
							admitted[u].Add(1)
						}
						time.Sleep(20 * time.Millisecond)
					}
				})
			}
			wg.Wait()
		}
		edge := time.Now().Truncate(30 * time.Second).Add(60 * time.Second)
		time.Sleep(time.Until(edge.Add(-26 * time.Second)))
		all(30, edge)
		time.Sleep(time.Until(edge.Add(-time.Second)))
		all(200, edge)
		over, most := 0, int64(0)
		for u := range admitted {
			if n := admitted[u].Load(); n > quota*105/100 {
				over, most = over+1, max(most, n)
			}
		}
		if st := c.Stats(); st.RenewFailed > 0 {
			t.Errorf("%d calls were not answered, want a server that is only busy", st.RenewFailed)
		}
		if over > 0 {
			t.Errorf("%d users were admitted more than a window lets, %d at most of %d", over, most, quota)
		}
		s.set(func(f *fake) { f.work = 0 })
		shut(t, c)
	})
}
