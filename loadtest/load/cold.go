package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

// cold are requests of tenants that nobody has seen before, one request of each.
type cold struct {
	mu       sync.Mutex
	admitted map[string]int64 // by tenant
	denied   int64
}

// coldAtOnce bounds the requests that wait; beyond it the next are late.
const coldAtOnce = 256

func (c *cold) drive(ctx context.Context, l *load, clients []*client.Client) {
	c.admitted = make(map[string]int64)
	if l.Cold == 0 {
		return
	}
	asking, began := context.WithoutCancel(ctx), l.now()
	places := make(chan struct{}, coldAtOnce)
	var group sync.WaitGroup
	defer group.Wait()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int(int64(l.Cold) * (l.now() - began) / 1e6); n < due && ctx.Err() == nil; n++ {
			tenant := fmt.Sprintf("cold-%s-%d", l.Agent, n)
			g := clients[(n*2654435761>>8)%len(clients)]
			places <- struct{}{}
			group.Go(func() {
				allowed := g.Allow(asking, attributesOf(tenant, l.Limits)...).Allowed
				<-places
				c.mu.Lock()
				defer c.mu.Unlock()
				if allowed {
					c.admitted[tenant]++
				} else {
					c.denied++
				}
			})
		}
	}
}
