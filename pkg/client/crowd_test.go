package client

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// A tenant that invents keys without end does not keep another's new users out, and no unit of either is lost.
func TestInventedKeysLeaveRoomForOthers(t *testing.T) {
	user := limit.Limit{Name: "per-user", Rate: perSecond(10), Burst: 10, By: []string{"user"}, Meter: "calls"}
	top := limit.Limit{Name: "per-tenant-user", Rate: perSecond(10), Burst: 10, By: []string{"tenant", "user"}, Meter: "calls"}
	for name, policy := range map[string]*limit.Policy{
		"a plan's":        plans(1, user),
		"the top level's": {Version: 1, Limits: plans(1, top).Plans[0].Limits, Plans: plans(1).Plans, Slot: 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, policy, func(t *testing.T, s *fake) {
				s.tenants["b"] = limit.Tenant{ID: "b", Exists: true, Plan: "p", Revision: 1}
				c := dial(t, s, WithMaxBuckets(500))
				admitted := map[string]int64{}
				ask := func(id, user string) Decision {
					d := c.Allow(t.Context(), tenant(id), User(user))
					if d.Allowed {
						admitted[id]++
					}
					return d
				}
				overloaded := 0
				for i := range 600 {
					for k := range 20 {
						if d := ask("a", fmt.Sprint("invented-", i, "-", k)); d.Reason == ReasonOverloaded {
							overloaded++
						}
					}
					if d := ask("b", fmt.Sprint("user-", i)); !d.Allowed {
						t.Errorf("at %d: b's new user was denied: %+v", i, d)
						break
					}
					time.Sleep(50 * time.Millisecond)
				}
				st := c.Stats()
				if overloaded == 0 || st.Overloaded == 0 || st.Evicted == 0 || st.Buckets > 500 {
					t.Errorf("%d of a's keys overloaded, %d buckets, %d evicted; want some refused, 500 at most, some evicted", overloaded, st.Buckets, st.Evicted)
				}
				shut(t, c)
				for _, id := range []string{"a", "b"} {
					if got := s.billed(func(r ledger.Row) bool { return r.Tenant == id }); got != admitted[id] {
						t.Errorf("%s: the ledger has %d units, %d were admitted", id, got, admitted[id])
					}
				}
			})
		})
	}
}

// A second tenant that wants as much comes to the same share as the first, whose buckets in use make room.
func TestTenantsComeToTheSameShare(t *testing.T) {
	user := limit.Limit{Name: "per-user", Rate: perSecond(1000), Burst: 1000, By: []string{"user"}, Meter: "calls"}
	bubble(t, plans(1, user), func(t *testing.T, s *fake) {
		s.tenants["b"] = limit.Tenant{ID: "b", Exists: true, Plan: "p", Revision: 1}
		c := dial(t, s, WithMaxBuckets(450))
		admitted := map[string]int64{}
		round := func(id string) (got int) {
			var mu sync.Mutex
			var wg sync.WaitGroup
			for u := range 400 {
				wg.Go(func() {
					if c.Allow(t.Context(), tenant(id), User(fmt.Sprint(u))).Allowed {
						mu.Lock()
						got++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			admitted[id] += int64(got)
			return got
		}
		var a, b int
		for range 5 {
			a = round("a")
			time.Sleep(time.Second)
		}
		if a != 360 {
			t.Errorf("alone a legs %d of 450, want 360", a)
		}
		for range 30 {
			b = round("b")
			a = round("a")
			time.Sleep(time.Second)
		}
		if a < 180 || a > 220 || b < 180 || b > 220 {
			t.Errorf("a legs %d and b %d of 450, want 200 each", a, b)
		}
		shut(t, c)
		for _, id := range []string{"a", "b"} {
			if got := s.billed(func(r ledger.Row) bool { return r.Tenant == id }); got != admitted[id] {
				t.Errorf("%s: the ledger has %d units, %d were admitted", id, got, admitted[id])
			}
		}
	})
}

// Tenants that nobody made do not keep those out that there are.
func TestInventedTenantsLeaveRoomForOthers(t *testing.T) {
	bubble(t, plans(1, requests(1000, 1000)), func(t *testing.T, s *fake) {
		for i := range 20 {
			id := fmt.Sprint("real-", i)
			s.tenants[id] = limit.Tenant{ID: id, Exists: true, Plan: "p", Revision: 1}
		}
		c := dial(t, s, WithMaxBuckets(200))
		for i := range 20 {
			for k := range 300 {
				c.Allow(t.Context(), tenant(fmt.Sprint("invented-", i, "-", k)))
			}
			time.Sleep(1500 * time.Millisecond)
			if d := c.Allow(t.Context(), tenant(fmt.Sprint("real-", i))); !d.Allowed {
				t.Errorf("at %d: a tenant that there is was denied: %+v", i, d)
			}
		}
		shut(t, c)
	})
}
