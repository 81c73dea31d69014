package main

import (
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/unraced"
	"github.com/f4ee788f/quota/loadtest/bench"
	"github.com/f4ee788f/quota/pkg/client"
)

var newUsers = flag.Int("users", 100_000, "how many new users come while decisions are made; docs/performance.md has the figure of 1,000,000")

// No decision waits for the growth of what a gateway remembers. Of ten decisions for each new user that comes, the
// longest takes at most 5 ms more than the longest time that the scheduler takes from a reader of the clock.
func TestNoDecisionWaitsForGrowth(t *testing.T) {
	unraced.Only(t)
	const most, tries = 5 * time.Millisecond, 3
	var beyond time.Duration
	for range tries {
		longest, scheduler, buckets := stall(t, 10**newUsers, *newUsers)
		t.Logf("the longest of %d decisions while %d users came: %v; of reading the clock: %v", 10**newUsers, *newUsers, longest, scheduler)
		if buckets < int64(*newUsers) {
			t.Fatalf("%d buckets after %d users came", buckets, *newUsers)
		}
		if beyond = longest - scheduler; beyond <= most {
			return
		}
	}
	t.Errorf("in %d tries a decision took %v more than the scheduler's longest, want %v at most", tries, beyond, most)
}

// stall makes so many decisions of known requests at least, and goes on until so many users came. It returns the longest
// decision, the longest time of as many that did nothing but read the clock, and how many buckets there are.
func stall(t *testing.T, decisions, users int) (longest, scheduler time.Duration, buckets int64) {
	t.Helper()
	c, stop, err := bench.Open(fiftyRules(), planOf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	q, ctx := newRequests(1_000, false, false), t.Context()
	fill(c, q, oneLimit, true)
	end := make(chan struct{})
	go func() {
		const callers = 512 // each waits for its users' first leases
		var came atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for i := came.Add(1); i <= int64(users); i = came.Add(1) {
					c.Allow(ctx, client.Tenant("t-new"), client.User(fmt.Sprintf("new-%d", i)), client.Endpoint(oneLimit))
				}
			})
		}
		all.Wait()
		close(end)
	}()
	w := &q.workers[0]
	for n, coming := 0, true; n < decisions || coming; n++ {
		q.next(w)
		began := time.Now()
		if !c.Allow(ctx, client.Tenant(w.tenant), client.User(w.user), client.Endpoint(oneLimit), client.IP(w.ip)).Allowed {
			t.Fatal("denied")
		}
		ended := time.Now()
		took, read := ended.Sub(began), time.Since(ended)
		for read < min(took, time.Microsecond) { // as long as most decisions take
			read = time.Since(ended)
		}
		longest, scheduler = max(longest, took), max(scheduler, read)
		if n&0xfff == 0 {
			select {
			case <-end:
				coming = false
			default:
			}
		}
	}
	return longest, scheduler, c.Stats().Buckets
}
