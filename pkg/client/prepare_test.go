package client

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// recalled is what a request came to before.
func recalled(c *Client, a []Attribute) (known *agent.Resolution, plain agent.Cell, again bool) {
	return c.reg.Recall(agent.KeyOf(attributesOf(a)), attributesOf(a))
}

// Requests that are prepared before any of them is decided are decided as those that are not, whatever they come to: they are new or come
// again, one limit holds them or several do, which deny, list, go soft or have slots, and their tenant, their cost and their size are odd.
func TestPreparedAreDecidedAsOthers(t *testing.T) {
	hour := limit.Rate{Units: 20, Per: time.Hour, Calendar: limit.Hour}
	of := func(user string) []limit.Match { return []limit.Match{{Attribute: "user", Patterns: []string{user}}} }
	at := func(endpoint string, l limit.Limit) limit.Limit {
		l.Name, l.Match = endpoint, []limit.Match{{Attribute: "endpoint", Patterns: []string{endpoint}}}
		return l
	}
	p := plans(1,
		limit.Limit{Name: "requests", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 300, Per: time.Hour, Calendar: limit.Hour}, Burst: 300, Meter: "requests"},
		at("one", limit.Limit{By: []string{"user"}, Algorithm: limit.FixedWindow, Rate: hour}),
		at("soft", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 20, Enforcement: limit.Soft, OveragePPM: limit.Micro / 2}),
		at("listed", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 20, Deny: of("bad"), Allow: of("good")}),
		at("slots", limit.Limit{Algorithm: limit.Concurrency, Slots: 4}),
	)
	decide := func(t *testing.T, seed uint64, batch int, fetch bool) (all []string) {
		bubble(t, p, func(t *testing.T, s *fake) {
			s.leases = memstore.New()
			c := dial(t, s)
			rng := rand.New(rand.NewPCG(seed, 1))
			pick := func(of ...string) string { return of[rng.IntN(len(of))] }
			for range 48 {
				requests, units, prepared := make([][]Attribute, 20), make([]int64, 20), make([]Prepared, 20)
				decisions, details := make([]Decision, 20), make([]Details, 20)
				for i := range requests {
					requests[i] = []Attribute{tenant(pick("a", "b", "c", "a tenant that cannot be")), {"endpoint", pick("one", "soft", "listed", "slots", "")}, {"user", pick("u", "bad", "good")}}
					for range rng.IntN(2) * rng.IntN(10) { // more than what is remembered, at times
						requests[i] = append(requests[i], Attribute{fmt.Sprint("x", len(requests[i])), "x"})
					}
					units[i] = []int64{0, 1, 1, 1, 2, 3, -1}[rng.IntN(7)]
				}
				for i := range requests {
					if i%batch == 0 && batch > 1 {
						for j := i; j < min(i+batch, len(requests)); j++ {
							prepared[j] = c.Prepare(requests[j]...)
						}
						if fetch {
							Fetch(prepared[i:min(i+batch, len(requests))])
						}
					}
					var d Decision
					switch {
					case batch == 1:
						d = c.AllowN(t.Context(), units[i], requests[i]...)
					case units[i] == 1:
						d = prepared[i].Allow(t.Context())
					default:
						d = prepared[i].AllowN(t.Context(), units[i])
					}
					all = append(all, fmt.Sprintf("%d units of %v: %v by %q, %v", units[i], requests[i], d.Allowed, d.Limit(), d.Reason))
					d.Done()
					decisions[i] = d
				}
				DetailsOf(decisions, details)
				for i, d := range decisions {
					if details[i] != d.Details() {
						t.Fatalf("%v by %v: together with others %+v, alone %+v", requests[i], d.by, details[i], d.Details())
					}
				}
			}
			shut(t, c)
		})
		return all
	}
	for seed := range uint64(3) {
		want := decide(t, seed, 1, false)
		denied := 0
		for _, how := range []struct {
			batch int
			fetch bool
		}{{2, false}, {2, true}, {16, false}, {16, true}} {
			for i, got := range decide(t, seed, how.batch, how.fetch) {
				if got != want[i] {
					t.Fatalf("seed %d, prepared so: %+v, request %d:\n got %s\nwant %s", seed, how, i, got, want[i])
				}
				if how.batch == 2 && !how.fetch && got[len(got)-len(", limit"):] == ", limit" {
					denied++
				}
			}
		}
		if denied == 0 || denied == len(want) {
			t.Errorf("seed %d: %d of %d are decided by a limit, want some", seed, denied, len(want))
		}
	}
}

// A request is decided by what holds when it is decided, and as often as it is asked for, whatever held when it was prepared.
func TestPreparedBeforeAChange(t *testing.T) {
	each := limit.Limit{Name: "requests", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1, Per: time.Hour, Calendar: limit.Hour}, Burst: 10, Meter: "requests"}
	bubble(t, plans(1, each), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		early := c.Prepare(tenant("a"))
		allowed := func(n int) (allowed int) {
			for range n {
				Fetch([]Prepared{early})
				if early.Allow(t.Context()).Allowed {
					allowed++
				}
			}
			return allowed
		}
		if n := allowed(30); n != 10 {
			t.Errorf("%d of 30 are allowed, want 10", n)
		}
		each.Name, each.Burst = "others", 7
		s.apply(plans(2, each))
		time.Sleep(2 * time.Second)
		if n := allowed(30); n != 7 {
			t.Errorf("by another limit %d of 30 are allowed, want 7", n)
		}
		shut(t, c)
		if d := early.Allow(t.Context()); d.Allowed || d.Reason != ReasonClosed {
			t.Errorf("after Close: %+v, want closed", d)
		}
		if got := s.billed(nil); got != 17 {
			t.Errorf("the ledger has %d units, 17 were admitted", got)
		}
	})
}

// Preparing allocates nothing, nor does fetching, nor a decision on what is prepared.
func TestPreparedDoNotAllocate(t *testing.T) {
	p := newPlenty()
	p.tokens = 1 << 20
	c := p.dial(t, 0)
	requests := manyTenants(32)
	for range 4 {
		touch(t, c, requests, 4)
	}
	ctx := t.Context()
	var prepared [16]Prepared
	if n := testing.AllocsPerRun(100, func() {
		for i := range prepared {
			prepared[i] = c.Prepare(requests[i]...)
		}
		Fetch(prepared[:])
		for i := range prepared {
			prepared[i].Allow(ctx)
		}
	}); n != 0 {
		t.Errorf("16 requests allocate %v times, want 0", n)
	}
}

// What is prepared may be decided by many, while the table that it was found in is replaced.
func TestPreparedByMany(t *testing.T) {
	p := newPlenty()
	c := p.dial(t, 0)
	const tenants, rounds = 512, 40
	requests := manyTenants(tenants)
	prepared := make([]Prepared, 16)
	for i := range prepared {
		prepared[i] = c.Prepare(requests[i]...)
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range rounds {
				Fetch(prepared)
				for i := range prepared {
					if d := prepared[i].Allow(t.Context()); !d.Allowed {
						t.Errorf("%v is denied: %v", requests[i], d.Reason)
					}
				}
			}
		})
	}
	for range 4 { // which has the table grow
		touch(t, c, requests, 4)
	}
	group.Wait()
	if s := c.Stats(); s.Admitted != 4*rounds*16+4*tenants {
		t.Errorf("%d units are counted, %d were admitted", s.Admitted, 4*rounds*16+4*tenants)
	}
}
