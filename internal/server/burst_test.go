package server_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/pkg/client"
)

// slowly is a store that is a round trip away.
type slowly struct {
	lease.Store
	away time.Duration
}

func (s slowly) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	time.Sleep(s.away / 2)
	defer time.Sleep(s.away / 2)
	return s.Store.Renew(ctx, renewals)
}

// A burst that nothing came before, at several gateways at once, finds what is there: what the first of them asks for
// within milliseconds is not taken for its demand.
func TestAColdBurstFindsWhatIsThere(t *testing.T) {
	const burst, requests = 100, 80
	for _, limit := range []string{
		"rate: 100/minute, burst: 100", "rate: 10/second, burst: 100", "algorithm: fixed_window, rate: 100/minute", "algorithm: sliding_window, rate: 100/minute",
	} {
		for _, gateways := range []int{2, 5} {
			for _, atOnce := range []int{1, 4, 30} {
				t.Run(fmt.Sprintf("%s, %d gateways, %d at once", limit, gateways, atOnce), func(t *testing.T) {
					inWorld(t, noon, "plans: {p: {limits: [{name: calls, "+limit+", meter: calls}]}}\ndefault_plan: p\n", func(t *testing.T, w *world) {
						w.stop()
						w.leases = slowly{w.leases, 2 * time.Millisecond}
						w.start()
						all := make([]*client.Client, gateways)
						for i := range all {
							all[i] = w.gateway(string(rune('a' + i)))
						}
						allow(1, []client.Attribute{client.Tenant("another")}, all...) // they are connected
						time.Sleep(time.Second)
						var admitted, made atomic.Int64
						var group sync.WaitGroup
						for _, c := range all {
							for range atOnce {
								group.Go(func() {
									for made.Add(1) <= requests {
										if c.Allow(context.Background(), acme()...).Allowed {
											admitted.Add(1)
										}
										time.Sleep(300 * time.Microsecond)
									}
								})
							}
						}
						group.Wait()
						// What lies with others at the end of the burst may be missed, a sixteenth of it.
						if n := admitted.Load(); n < requests-burst/16 {
							t.Errorf("got %d of %d admitted, where %d may be", n, requests, burst)
						}
						w.shut(all...)
					})
				})
			}
		}
	}
}
