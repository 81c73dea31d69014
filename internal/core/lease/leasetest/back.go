package leasetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// back is what a bucket does when holders come back that went on out of contact.
func back(t *testing.T, open func(t *testing.T) lease.Store) {
	const start, second = 1_700_000_000_000_000, 1_000_000
	one := func(t *testing.T, s lease.Store, r lease.Renewal) lease.Grant {
		t.Helper()
		a := s.Renew(context.Background(), []lease.Renewal{r})[0]
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		return a.Grant
	}
	// settle lets holders of 50 requests a second each renew until the shares are known, last at start + 2 s.
	// It returns their last renewals. Each denied so many requests for one admitted.
	settle := func(t *testing.T, s lease.Store, spec lease.Spec, holders int, denied int64) []lease.Renewal {
		rs := make([]lease.Renewal, holders)
		for i := range rs {
			rs[i] = ask(fmt.Sprint("agent-", i), spec, start, 1, 1)
			one(t, s, rs[i])
		}
		for range 4 {
			for i := range rs {
				r := &rs[i]
				r.Now, r.Number, r.Waiting, r.Elapsed = r.Now+second/2, r.Number+1, 0, second/2
				r.Told = r.Admitted
				r.Admitted, r.Denied = r.Admitted+25, r.Denied+25*denied
				r.Trickle = one(t, s, *r).Trickle
			}
		}
		return rs
	}
	// again is the holder's renewal so many seconds later, having spent its trickle.
	again := func(r lease.Renewal, seconds, denied int64) lease.Renewal {
		r.Now, r.Number, r.Elapsed = r.Now+seconds*second, r.Number+1, seconds*second
		r.Told = r.Admitted
		r.Admitted, r.Denied = r.Admitted+50*seconds, r.Denied+50*seconds*denied
		return r
	}

	t.Run("demand of an outage is as the holder's clock has it", func(t *testing.T) {
		s := open(t)
		rs := settle(t, s, Bucket(1000, 2000), 2, 0)
		g := one(t, s, again(rs[0], 60, 0))
		if most := int64(1.2 * 51 * 1e6); g.Trickle > most || g.Trickle < 50e6 {
			t.Errorf("50 a second for 60 s: got a trickle of %d, want somewhat more than that, at most %d", g.Trickle, most)
		}
	})

	t.Run("who comes back first takes out what all that denied have spent", func(t *testing.T) {
		s := open(t)
		rs := settle(t, s, Bucket(1000, 2000), 20, 2)
		if g := one(t, s, again(rs[0], 30, 2)); g.Remaining+g.Tokens > 20 {
			t.Errorf("the first: got %d tokens and %d left, want none: all shares were spent, and two of three denied", g.Tokens, g.Remaining)
		}
		// What it gained since is not spent, but for the trickle of those who come back.
		g := one(t, s, again(rs[1], 31, 2))
		if left := g.Remaining + g.Tokens; left < 600 || left > 1000 {
			t.Errorf("the second, 1 s later: got %d tokens and %d left, want most of the 1000 of that second", g.Tokens, g.Remaining)
		}
	})

	t.Run("a bucket in debt leases less than its rate", func(t *testing.T) {
		s := open(t)
		rs := settle(t, s, Bucket(1000, 2000), 1, 99)
		r := again(rs[0], 1, 99)
		r.Admitted += 5000
		if g := one(t, s, r); g.Trickle > 875e6 || g.Trickle < 500e6 {
			t.Errorf("2000 in debt: got a trickle of %d, want an eighth of the rate kept back", g.Trickle)
		}
		// The debt is repaid, and all of the rate is leased again.
		for range 200 {
			r.Now, r.Number, r.Elapsed, r.Told = r.Now+second/10, r.Number+1, second/10, r.Admitted
			r.Admitted, r.Denied = r.Admitted+90, r.Denied+9000
			r.Trickle = one(t, s, r).Trickle
		}
		if r.Trickle < 990e6 {
			t.Errorf("20 s later: got a trickle of %d, want the rate", r.Trickle)
		}
	})
}
