package server_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/relay"
	"github.com/f4ee788f/quota/pkg/client"
)

const relayedPolicy = `
default_plan: p
plans:
  p:
    limits:
      - {name: requests, by: [tenant], rate: 2000/second, burst: 1000}
`

// asked counts the renewals that come to a lease store.
type asked struct {
	lease.Store
	renewals atomic.Int64
}

func (a *asked) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	a.renewals.Add(int64(len(renewals)))
	return a.Store.Renew(ctx, renewals)
}

// Twenty gateways of one bucket behind a server that relays are one holder to the lease store, through a restart of
// that server, and get what the limit lets through.
func TestRelay(t *testing.T) {
	inWorld(t, time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC), relayedPolicy, func(t *testing.T, w *world) {
		w.stop()
		store := &asked{Store: w.leases}
		at := &asked{Store: relay.New(store, "server-1")}
		w.leases = at
		w.start()
		var gateways []*client.Client
		for i := range 20 {
			gateways = append(gateways, w.gateway(fmt.Sprint("gateway-", i)))
		}
		// Three times the limit, in all.
		run := func(d time.Duration) int64 {
			var admitted atomic.Int64
			var running sync.WaitGroup
			for _, g := range gateways {
				running.Go(func() {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
						for range 3 {
							if g.Allow(context.Background(), acme()...).Allowed {
								admitted.Add(1)
							}
						}
					}
				})
			}
			running.Wait()
			return admitted.Load()
		}
		hold := func(what string, admitted, least int64) {
			t.Helper()
			if most := int64((2000*10 + 1000) * 105 / 100); admitted > most || admitted < least {
				t.Errorf("%s: %d admitted in 10 s, want %d to %d", what, admitted, least, most)
			}
		}
		hold("from the start", run(10*time.Second), 20_000)
		if up, here := store.renewals.Load(), at.renewals.Load(); up*4 > here {
			t.Errorf("of %d renewals %d came to the lease store, want a quarter at most", here, up)
		}
		// A relay that ends without a word: what it had is nobody's until its lease and one term more are over, a second in all.
		w.stop()
		w.leases = relay.New(store, "server-2")
		w.start()
		hold("after a crash", run(10*time.Second), 17_500)
		w.shut(gateways...)
	})
}
