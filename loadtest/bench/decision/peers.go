package main

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/juju/ratelimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/f4ee788f/quota/pkg/client"
)

const plenty = 1 << 40

// counter stands alone on its cache line.
type counter struct {
	_ [64]byte
	atomic.Int64
	_ [56]byte
}

func atomicAdd() candidate {
	v := new(counter)
	return candidate{"one atomic add", func(_, n int) {
		for i := 0; i < n; i += 8 {
			if v.Add(-1) == 1 || v.Add(-1) == 1 || v.Add(-1) == 1 || v.Add(-1) == 1 ||
				v.Add(-1) == 1 || v.Add(-1) == 1 || v.Add(-1) == 1 || v.Add(-1) == 1 {
				panic("went round")
			}
		}
	}}
}

// ofHandle decides by a handle.
func ofHandle(l *client.Limiter, want bool) candidate {
	return candidate{"Limiter.Allow", func(_, n int) {
		for range n {
			must(l.Allow(ctx).Allowed == want)
		}
	}}
}

func must(ok bool) {
	if !ok {
		panic("the other answer was expected")
	}
}

func timeRate(want bool) candidate {
	l := rate.NewLimiter(1e9, 1<<50)
	if !want {
		l = rate.NewLimiter(0, 0)
	}
	return candidate{"x/time/rate", func(_, n int) {
		for range n {
			must(l.Allow() == want)
		}
	}}
}

func juju(want bool) candidate {
	l := ratelimit.NewBucketWithRate(1e9, plenty)
	if !want {
		l = ratelimit.NewBucket(1000*time.Hour, 1)
		l.TakeAvailable(1)
	}
	return candidate{"juju/ratelimit", func(_, n int) {
		for range n {
			must((l.TakeAvailable(1) == 1) == want)
		}
	}}
}

func largeRate() candidate {
	l := rate.NewLimiter(0, 900_000_000)
	return candidate{"x/time/rate", func(_, n int) {
		now := time.Now()
		for i := range n {
			if i&1 == 0 {
				must(l.Allow())
			} else {
				must(!l.AllowN(now, 1_000_000_000))
			}
		}
	}}
}

func largeJuju() candidate {
	l := ratelimit.NewBucket(time.Minute, 900_000_000)
	return candidate{"juju/ratelimit", func(_, n int) {
		for i := range n {
			if i&1 == 0 {
				must(l.TakeAvailable(1) == 1)
			} else {
				_, ok := l.TakeMaxDuration(1_000_000_000, 0)
				must(!ok)
			}
		}
	}}
}

// A door takes one unit for a key. A peer without keys of its own stands behind a sync.Map.
type door struct {
	name string
	open func() func(key string) bool
}

var ctx = context.Background()

func doors(allow bool) []door {
	return []door{
		{"x/time/rate behind sync.Map", func() func(string) bool {
			var m sync.Map
			return func(key string) bool {
				v, ok := m.Load(key)
				if !ok {
					l := rate.NewLimiter(1e9, 1<<50)
					if !allow {
						l = rate.NewLimiter(0, 0)
					}
					v, _ = m.LoadOrStore(strings.Clone(key), l)
				}
				return v.(*rate.Limiter).Allow()
			}
		}},
		{"juju/ratelimit behind sync.Map", func() func(string) bool {
			var m sync.Map
			return func(key string) bool {
				v, ok := m.Load(key)
				if !ok {
					b := ratelimit.NewBucketWithRate(1e9, plenty)
					if !allow {
						b = ratelimit.NewBucket(1000*time.Hour, 1)
					}
					v, _ = m.LoadOrStore(strings.Clone(key), b)
				}
				return v.(*ratelimit.Bucket).TakeAvailable(1) == 1
			}
		}},
		{"sethvargo/go-limiter", func() func(string) bool {
			tokens := uint64(plenty)
			if !allow {
				tokens = 1
			}
			s, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: 1000 * time.Hour, SweepInterval: 1000 * time.Hour, SweepMinTTL: 1000 * time.Hour})
			check(err)
			return func(key string) bool {
				_, _, _, ok, err := s.Take(ctx, key)
				if !ok && allow || err != nil { // its first sight of a key stores the string
					_, _, _, ok, _ = s.Take(ctx, key)
				}
				return ok
			}
		}},
		{"throttled GCRA, memstore", func() func(string) bool {
			s, err := memstore.NewCtx(0)
			check(err)
			quota := throttled.RateQuota{MaxRate: throttled.PerDuration(1_000_000_000, time.Second), MaxBurst: 1 << 30}
			if !allow {
				quota = throttled.RateQuota{MaxRate: throttled.PerDuration(1, 1000*time.Hour)}
			}
			l, err := throttled.NewGCRARateLimiterCtx(s, quota)
			check(err)
			return func(key string) bool {
				limited, _, err := l.RateLimitCtx(ctx, key, 1)
				return !limited && err == nil
			}
		}},
		{"ulule/limiter, memory", func() func(string) bool {
			s := ululemem.NewStoreWithOptions(ulule.StoreOptions{CleanUpInterval: 1000 * time.Hour})
			quota := int64(plenty)
			if !allow {
				quota = 1
			}
			l := ulule.New(s, ulule.Rate{Period: 1000 * time.Hour, Limit: quota})
			return func(key string) bool {
				c, err := l.Get(ctx, key)
				return err == nil && !c.Reached
			}
		}},
	}
}

// behind makes a door's candidate: it is asked for each of a request's keys.
func behind(d door, r *requests, limits int, want bool) candidate {
	allow := d.open()
	r.each(func(w *worker) {
		for _, k := range w.keys[:limits] {
			allow(strings.Clone(k))
		}
	})
	return candidate{d.name, func(g, n int) {
		w := &r.workers[g]
		for range n {
			r.next(w)
			ok := true
			for _, k := range w.keys[:limits] {
				ok = allow(k) && ok
			}
			must(ok == want)
		}
	}}
}
