package client

import (
	"context"
	"flag"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/session"
)

var reportClients = flag.Int("report-clients", 50, "of the measurement of reports")

// What a report costs a client, all in all, for each live bucket: 10,000 of them, a third in use since the one before. The
// clients report in turn, so that no bucket is in a cache, as in a process that does more than report.
func BenchmarkReport(b *testing.B) {
	const each = 10_000
	p := newPlenty()
	p.ttl, p.tokens = 10*time.Minute, 10_000 // nothing is renewed meanwhile
	tenants := manyTenants(each)
	clients := make([]*Client, *reportClients)
	for i := range clients {
		clients[i] = p.dial(b, i)
		touch(b, clients[i], tenants, 128)
	}
	r := rand.New(rand.NewPCG(1, 2))
	use := func() {
		for _, c := range clients {
			for range each / 3 * 5 / 4 { // some come twice
				if a := tenants[r.IntN(each)]; !c.Allow(context.Background(), a...).Allowed {
					b.Fatal("denied")
				}
			}
		}
	}
	report := func(c *Client) {
		c.session.Ask((*session.Loop).Report)
	}
	for range 3 { // so that requests are remembered
		use()
		for _, c := range clients {
			report(c)
		}
	}
	runtime.GC()
	var took time.Duration
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		c := clients[i%len(clients)]
		if i%len(clients) == 0 {
			b.StopTimer()
			use()
			b.StartTimer()
		}
		before := userTime()
		report(c)
		took += userTime() - before
		i++
	}
	b.ReportMetric(float64(took)/float64(b.N*each), "cpu-ns/bucket")
	b.ReportMetric(float64(b.Elapsed())/float64(b.N*each), "ns/bucket")
}
