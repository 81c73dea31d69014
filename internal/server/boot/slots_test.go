package boot_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

// Two gateways on a real server share slots and a paced limit: no more requests run at once than there
// are slots, everyone in a queue has a turn, and paced work leaves at its rate.
func TestSlotsAndPaceOverTwoGateways(t *testing.T) {
	n := start(t, embedded(t, `
limits:
  - {name: in-flight, match: {endpoint: "/run"}, by: [tenant], algorithm: concurrency, slots: 6, queue: 100}
  - {name: paced, match: {endpoint: "/mail"}, by: [tenant], algorithm: leaky_bucket, rate: 50/second, queue: 100}
plans: {free: {limits: [{name: requests, by: [tenant], meter: requests}]}}
default_plan: free
`))
	var gateways []*client.Client
	for i := range 2 {
		c, err := client.Dial(t.Context(), n.GRPCAddr(), client.WithAgent(fmt.Sprint("gw-", i)), client.WithFirstWait(patience), client.WithMaxWait(patience))
		if err != nil {
			t.Fatal(err)
		}
		gateways = append(gateways, c)
	}
	ask := func(path string) []client.Attribute {
		return []client.Attribute{{Name: "tenant", Value: "acme"}, {Name: "endpoint", Value: path}}
	}
	var running, most atomic.Int64
	together := time.Now().Add(10 * time.Second)
	var wg sync.WaitGroup
	for i := range 120 {
		wg.Go(func() {
			d := gateways[i%2].Allow(context.Background(), ask("/run")...)
			if !d.Allowed {
				t.Errorf("request %d: %v by %q, want its turn", i, d.Reason, d.Limit())
				return
			}
			now := running.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			// The work: a little, and for the first ones until others have come, however late they are.
			for time.Sleep(10 * time.Millisecond); most.Load() < 4 && time.Now().Before(together); {
				time.Sleep(time.Millisecond)
			}
			running.Add(-1)
			d.Done()
		})
	}
	wg.Wait()
	if most.Load() > 6 || most.Load() < 4 {
		t.Errorf("%d requests ran at once, want 6", most.Load())
	}
	begin := time.Now()
	for i := range 60 {
		wg.Go(func() {
			if d := gateways[i%2].Wait(context.Background(), ask("/mail")...); !d.Allowed {
				t.Errorf("mail %d: %v, want its turn", i, d.Reason)
			}
		})
	}
	wg.Wait()
	if took := time.Since(begin); took < 1100*time.Millisecond || took > patience {
		t.Errorf("60 at 50 a second took %v, want 1.2 s or a little more", took)
	}
	for _, c := range gateways {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "every start is billed once", func() bool { return n.total() == 180 }, func() any { return n.total() })
}
