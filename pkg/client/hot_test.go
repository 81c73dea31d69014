package client

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// A gateway that comes back with its journal asks for the tenants that it had before Dial returns, in few calls. So none
// of their requests waits, whether the life before was closed or killed. Without a journal each waits for its tenant.
func TestARestartKnowsItsTenants(t *testing.T) {
	for _, c := range []struct {
		name            string
		journal, killed bool
	}{{"closed", true, false}, {"killed", true, true}, {"no journal", false, false}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
				s.agents, s.delay, s.twins = 10, 5*time.Millisecond, c.killed
				const tenants = 300
				for i := range tenants {
					id := fmt.Sprint("t", i)
					s.tenants[id] = limit.Tenant{ID: id, Exists: true, Plan: "p", Revision: 1}
				}
				dir := t.TempDir()
				open := func() *Client {
					if c.journal {
						return dial(t, s, WithJournal(dir))
					}
					return dial(t, s)
				}
				ask := func(c *Client) (waited int) {
					var all sync.WaitGroup
					var mu sync.Mutex
					for i := range tenants {
						all.Go(func() {
							began := time.Now()
							allowed := c.Allow(t.Context(), tenant(fmt.Sprint("t", i))).Allowed
							mu.Lock()
							defer mu.Unlock()
							if !allowed {
								t.Errorf("tenant %d is denied", i)
							}
							if time.Since(began) > 0 {
								waited++
							}
						})
					}
					all.Wait()
					return waited
				}
				first := open()
				ask(first)
				time.Sleep(5 * time.Second)
				if c.killed {
					dir = taken(t, dir)
				}
				shut(t, first)
				synctest.Wait()
				before := s.calls
				next := open()
				if calls := s.calls - before; calls > 2 {
					t.Errorf("%d calls until Dial returns, want 2 at most", calls)
				}
				if waited, want := ask(next), 0; c.journal && waited != want || !c.journal && waited != tenants {
					t.Errorf("%d of %d requests waited", waited, tenants)
				}
				shut(t, next)
			})
		})
	}
}
