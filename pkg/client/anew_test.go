package client

import (
	"fmt"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

// Leases of two minutes live when the lease store forgets them. Told of that, the agent renews all of them within a second,
// and once: whichever server says it, however often, and also one that says it of an earlier loss.
func TestLeasesAreRenewedAfterALoss(t *testing.T) {
	unraced.Only(t) // one goroutine asks, for minutes
	const keys = 200
	l := limit.Limit{Name: "calls", By: []string{"user"}, Rate: perSecond(1000), Burst: 2000}
	bubble(t, plans(1, l), func(t *testing.T, s *fake) {
		s.leases, s.forgot = memstore.New(), 1_000
		c := dial(t, s)
		ask := func(d time.Duration) {
			for range d / (50 * time.Millisecond) {
				for k := range keys {
					c.Allow(t.Context(), tenant("a"), User(fmt.Sprint(k)))
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		renewed := func(d time.Duration) (n int) {
			s.set(func(f *fake) { n = f.renewals })
			ask(d)
			s.set(func(f *fake) { n = f.renewals - n })
			return n
		}
		ask(3 * time.Minute) // terms grow
		if n := renewed(2 * time.Second); n > keys/4 {
			t.Fatalf("%d renewals in 2 s of %d leases: their terms are not long", n, keys)
		}
		s.set(func(f *fake) { f.leases = memstore.New() })
		s.forget(2_000)
		first := renewed(150 * time.Millisecond)
		if all := first + renewed(time.Second); first < keys/4 || first > keys*3/4 || all < keys {
			t.Errorf("of %d leases %d were renewed within 150 ms and %d within a second; want about half, and all", keys, first, all)
		}
		if got := s.leases.Buckets(); got != keys {
			t.Errorf("the store knows %d buckets again, want %d", got, keys)
		}
		ask(4 * time.Minute)
		for what, again := range map[string]func(){
			"the same again":         func() { s.forget(2_000) },
			"an earlier loss":        func() { s.forget(1_500) },
			"another server says so": func() { s.forgot = 2_000; s.restart() },
			"no server knows":        func() { s.forget(0) },
		} {
			again()
			if n := renewed(2 * time.Second); n > keys/4 {
				t.Errorf("%s: %d renewals in 2 s of %d leases, want few", what, n, keys)
			}
			ask(10 * time.Second)
		}
		// It was away when that was said.
		s.set(func(f *fake) { f.forgot = 3_000 })
		s.restart()
		if n := renewed(3 * time.Second); n < keys {
			t.Errorf("a loss that it was not told of while it was away: %d renewals in 3 s of %d leases, want all", n, keys)
		}
		shut(t, c)
	})
}

// What the first server says is how things are, and no loss.
func TestTheFirstServerTellsOfNoLoss(t *testing.T) {
	bubble(t, plans(1, requests(1000, 2000)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		drive(c, 1, 1, tenant("a"))
		before := 0
		s.set(func(f *fake) { before = f.renewals })
		s.forget(2_000) // a server that looked at the store for the first time
		time.Sleep(400 * time.Millisecond)
		s.set(func(f *fake) {
			if f.renewals != before {
				t.Errorf("%d renewals, want none before the term's end", f.renewals-before)
			}
		})
		shut(t, c)
	})
}
