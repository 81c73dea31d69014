package client

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/unraced"
)

// More new buckets than a server can lease in a call's time wait for it in the agents, without a call in vain: each is leased once,
// and no agent takes a server that is busy for one that is lost.
func TestABusyServerIsNotAskedInVain(t *testing.T) {
	unraced.Only(t) // what meets in it meets in TestHammer
	const agents, buckets = 4, 5_000
	each := requests(100, 1000)
	each.By = []string{"user"}
	bubble(t, plans(1, each), func(t *testing.T, s *fake) {
		s.set(func(f *fake) { f.work, f.ttl = 250*time.Microsecond, time.Minute })
		var clients []*Client
		for i := range agents {
			clients = append(clients, dial(t, s, WithAgent(fmt.Sprintf("gw-%d", i)), WithMaxWait(time.Minute)))
			time.Sleep(time.Millisecond) // the next is another epoch's
		}
		var denied atomic.Int64
		var wg sync.WaitGroup
		begin := time.Now()
		for _, c := range clients {
			for n := range buckets {
				wg.Go(func() {
					if d := c.Allow(t.Context(), tenant("a"), Attribute{"user", fmt.Sprint(n)}); !d.Allowed && denied.Add(1) == 1 {
						t.Logf("denied: %+v", d)
					}
				})
			}
		}
		wg.Wait()
		if took, work := time.Since(begin), agents*buckets*250*time.Microsecond; took > work*5/4 {
			t.Errorf("all were leased after %v, want little more than the server's %v", took, work)
		}
		var failed, sent int64
		for _, c := range clients {
			st := c.Stats()
			failed, sent = failed+st.RenewFailed, sent+st.Renewals
			shut(t, c)
		}
		if denied.Load() > 0 || failed > 0 || sent > agents*buckets {
			t.Errorf("%d denied, %d calls not answered, %d renewals for %d leases; want 0, 0 and one each", denied.Load(), failed, sent, agents*buckets)
		}
	})
}
