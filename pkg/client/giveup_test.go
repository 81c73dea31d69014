package client

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// perUser is a limit with a bucket for each user.
func perUser() limit.Limit {
	l := requests(100, 1000)
	l.By = []string{"user"}
	return l
}

// leaseAll has so many users each have a lease.
func leaseAll(t *testing.T, c *Client, users int) {
	t.Helper()
	var wg sync.WaitGroup
	for n := range users {
		wg.Go(func() {
			if d := c.Allow(t.Context(), tenant("a"), Attribute{"user", fmt.Sprint(n)}); !d.Allowed {
				t.Errorf("user %d: denied: %v", n, d.Reason)
			}
		})
	}
	wg.Wait()
}

// A client that ends while leases cannot go back, for the lease store hangs, spends on that a small part of its time: the usage goes to
// the ledger, which is there.
func TestCloseSettlesWhereLeasesCannotGoBack(t *testing.T) {
	const users = 5_000
	bubble(t, plans(1, perUser()), func(t *testing.T, s *fake) {
		s.set(func(f *fake) { f.ttl = 10 * time.Second })
		c := dial(t, s, WithReportInterval(time.Hour))
		time.Sleep(2 * time.Second) // the first report is a sign of life
		leaseAll(t, c, users)
		s.set(func(f *fake) { f.delay = time.Hour })
		time.Sleep(20 * time.Second) // leases end, and their renewals are not answered
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		if got := s.billed(nil); got != users {
			t.Errorf("%d units billed, want %d", got, users)
		}
	})
}

// Nor does one whose leases go back slowly, for the server has much to do, miss to settle in its time.
func TestCloseSettlesWhereLeasesGoBackSlowly(t *testing.T) {
	const users = 2_000
	bubble(t, plans(1, perUser()), func(t *testing.T, s *fake) {
		s.set(func(f *fake) { f.ttl, f.work = time.Minute, 5*time.Millisecond })
		c := dial(t, s, WithReportInterval(time.Hour), WithMaxWait(time.Minute))
		time.Sleep(2 * time.Second) // the first report is a sign of life
		leaseAll(t, c, users)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		if got := s.billed(nil); got != users {
			t.Errorf("%d units billed, want %d", got, users)
		}
		if s.finals < 200 || s.finals >= users {
			t.Errorf("%d leases went back, want some of %d", s.finals, users)
		}
	})
}

// A client that ends tells the lease store what was spent of leases of which nothing is left as well, and which lapsed for that.
func TestCloseTellsOfLeasesThatLapsed(t *testing.T) {
	bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
		s.set(func(f *fake) { f.chunk = 0 })
		c := dial(t, s, WithReportInterval(time.Hour))
		for range 5 {
			if d := c.Allow(t.Context(), tenant("a")); !d.Allowed {
				t.Fatalf("denied: %v", d.Reason)
			}
		}
		time.Sleep(10 * time.Second)
		told := func() (n int64) {
			s.set(func(f *fake) {
				for _, b := range f.buckets {
					for _, spent := range b.spent {
						n += spent
					}
				}
			})
			return n
		}
		before := told()
		shut(t, c)
		if got := told(); before >= 5 || got != 5 {
			t.Errorf("the store was told of %d units before the end and %d at it, want fewer than 5, and 5", before, got)
		}
	})
}
