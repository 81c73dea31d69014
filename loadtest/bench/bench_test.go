package bench

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

// A candidate makes, once, what one goroutine does n times.
type candidate struct {
	name string
	make func(testing.TB) func(n int)
}

var atomicAdd = candidate{"atomic.Int64.Add", func(testing.TB) func(n int) {
	v := new(struct {
		_ [64]byte
		atomic.Int64
		_ [64]byte
	})
	return func(n int) {
		for i := 0; i < n; i += 8 {
			if v.Add(-1) == 1 || v.Add(-1) == 1 || v.Add(-1) == 1 || v.Add(-1) == 1 ||
				v.Add(-1) == 1 || v.Add(-1) == 1 || v.Add(-1) == 1 || v.Add(-1) == 1 {
				panic("went round")
			}
		}
	}
}}

var handle = candidate{"Limiter.Allow", func(tb testing.TB) func(n int) { return handleOf(tb, open(tb)) }}

func handleOf(tb testing.TB, c *client.Client) func(n int) {
	l, err := c.Limiter(context.Background(), client.Tenant("acme"))
	if err != nil {
		tb.Fatal(err)
	}
	if !l.Allow(tb.Context()).Allowed {
		tb.Fatal("denied")
	}
	ctx := tb.Context()
	return func(n int) {
		for range n {
			if !l.Allow(ctx).Allowed {
				panic("denied")
			}
		}
	}
}

var timeRate = candidate{"x/time/rate", func(testing.TB) func(n int) {
	l := endless()
	return func(n int) {
		for range n {
			if !l.Allow() {
				panic("denied")
			}
		}
	}
}}

// byTenant finds one limit among 100,000 tenants'.
var byTenant = candidate{"Allow/tenants", func(tb testing.TB) func(n int) { return byTenantOf(tb, open(tb)) }}

func byTenantOf(tb testing.TB, c *client.Client) func(n int) {
	keys := names("tenant")
	return attributes(tb, c, keys, func(k string) []client.Attribute {
		return []client.Attribute{client.Tenant(k)}
	}, func(ctx context.Context, k string) bool {
		return c.Allow(ctx, client.Tenant(k)).Allowed
	})
}

// byUser finds one limit among one tenant's 100,000 users.
var byUser = candidate{"Allow/users", func(tb testing.TB) func(n int) {
	c, keys := open(tb), names("user")
	return attributes(tb, c, keys, func(k string) []client.Attribute {
		return []client.Attribute{client.Tenant("users"), client.User(k)}
	}, func(ctx context.Context, k string) bool {
		return c.Allow(ctx, client.Tenant("users"), client.User(k)).Allowed
	})
}}

func attributes(tb testing.TB, c *client.Client, keys []string, of func(string) []client.Attribute, allow func(context.Context, string) bool) func(n int) {
	ctx := context.Background()
	var wg sync.WaitGroup
	for w := range 64 { // first touches, in company, and what makes requests known
		wg.Go(func() {
			for i := w; i < len(keys); i += 64 {
				for allowed := 0; allowed < 4; {
					if c.Allow(ctx, of(keys[i])...).Allowed {
						allowed++
					}
				}
			}
		})
	}
	wg.Wait()
	if b := c.Stats().Buckets; b != live {
		tb.Fatalf("%d live buckets, want %d", b, live)
	}
	return func(n int) {
		o := walk()
		for range n {
			if !allow(ctx, keys[o.next()]) {
				panic("denied")
			}
		}
	}
}

func syncMap(kind string) candidate {
	return candidate{"x/time/rate behind sync.Map", func(testing.TB) func(n int) {
		var m sync.Map
		keys := names(kind)
		for _, k := range keys {
			m.Store(k, endless())
		}
		return func(n int) {
			o := walk()
			for range n {
				v, _ := m.Load(keys[o.next()])
				if !v.(interface{ Allow() bool }).Allow() {
					panic("denied")
				}
			}
		}
	}}
}

// goMap reads a plain map of the same keys: what finding alone costs.
func goMap(kind string) candidate {
	return candidate{"map read", func(testing.TB) func(n int) {
		keys := names(kind)
		m := make(map[string]*atomic.Int64, live)
		for _, k := range keys {
			m[k] = new(atomic.Int64)
		}
		return func(n int) {
			o := walk()
			for range n {
				m[keys[o.next()]].Add(-1)
			}
		}
	}}
}

// together runs f n times, spread over as many goroutines as there are cores.
func together(cores, n int, f func(n int)) {
	var wg sync.WaitGroup
	for g := range cores {
		share := n / cores
		if g < n%cores {
			share++
		}
		wg.Go(func() { f(share) })
	}
	wg.Wait()
}

func run(b *testing.B, all ...candidate) {
	for _, c := range all {
		b.Run(c.name, func(b *testing.B) {
			f := c.make(b)
			runtime.GC()
			b.Run("op", func(b *testing.B) {
				b.ReportAllocs()
				together(runtime.GOMAXPROCS(0), b.N, f)
			})
		})
	}
}

func BenchmarkHandle(b *testing.B) { run(b, atomicAdd, handle, timeRate) }

func BenchmarkAttributes(b *testing.B) {
	run(b, byTenant, byUser, syncMap("user"), goMap("user"))
}

// BenchmarkJournal decides without a journal and with one by turns, all buckets feeding a meter, and tells
// the quickest turn of each, which others on the machine disturb least.
func BenchmarkJournal(b *testing.B) {
	for _, c := range []struct {
		name string
		of   func(testing.TB, *client.Client) func(n int)
	}{{"Limiter.Allow", handleOf}, {"Allow/tenants", byTenantOf}} {
		b.Run(c.name, func(b *testing.B) {
			without, with := c.of(b, open(b)), c.of(b, open(b, client.WithJournal(b.TempDir())))
			runtime.GC()
			b.Run("op", func(b *testing.B) {
				const turn = 10_000
				quickest := [2]time.Duration{time.Hour, time.Hour}
				for i := 0; i < b.N; i += 2 * turn {
					for k, f := range []func(int){without, with} {
						began := time.Now()
						f(turn)
						quickest[k] = min(quickest[k], time.Since(began))
					}
				}
				b.ReportMetric(float64(quickest[0])/turn, "without-ns")
				b.ReportMetric(float64(quickest[1])/turn, "with-ns")
			})
		})
	}
}
