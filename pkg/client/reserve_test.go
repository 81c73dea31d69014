package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

// hourly is a limit that hardly refills while a test runs.
func hourly(name string, burst int64) limit.Limit {
	return limit.Limit{Name: name, Rate: limit.Rate{Units: 1, Per: time.Hour, Calendar: limit.Hour}, Burst: burst, Meter: name}
}

// A reservation takes the most of every limit, bills what is committed, and gives back the rest.
func TestReserve(t *testing.T) {
	user := hourly("per-user", 60)
	user.By, user.Meter = []string{"user"}, ""
	bubble(t, plans(1, hourly("requests", 100), user), func(t *testing.T, s *fake) {
		s.tenants["a/b"] = limit.Tenant{ID: "a/b", Exists: true, Plan: "p", Parent: "a", Revision: 1}
		c := dial(t, s, WithReportInterval(50*time.Millisecond))
		reserve := func(n int64) (*Reservation, Decision) {
			return c.Reserve(t.Context(), n, tenant("a/b"), User("u"))
		}
		r, d := reserve(50)
		if r == nil || !d.Allowed || r.n != 50 {
			t.Fatalf("%+v, want 50 units reserved", d)
		}
		if r, d := reserve(20); r != nil || d.Allowed || d.Limit() != "per-user" {
			t.Errorf("20 more of 60: %+v by %q, want denied by per-user", d, d.Limit())
		}
		time.Sleep(time.Second) // reported, renewed: nothing of it is billed
		if got := s.billed(nil); got != 0 {
			t.Errorf("%d units are billed of a reservation, want none", got)
		}
		if st := c.Stats(); st.Reservations != 1 || st.UnitsReserved != 50 || c.Counters().Admitted != 0 {
			t.Errorf("stats %+v, want one reservation of 50 units", st)
		}
		if err := r.Commit(-1); !errors.Is(err, ErrCost) {
			t.Errorf("a cost below 0: %v, want ErrCost", err)
		}
		if err := r.Commit(10); err != nil {
			t.Errorf("Commit: %v", err)
		}
		if err := r.Commit(10); err != nil {
			t.Errorf("the same cost again: %v", err)
		}
		for _, err := range []error{r.Commit(11), r.Cancel(), r.Use(10), (*Reservation)(nil).Commit(1)} {
			if !errors.Is(err, ErrReservationEnded) {
				t.Errorf("ended again: %v, want ErrReservationEnded", err)
			}
		}
		if r, _ := reserve(50); r == nil {
			t.Error("50 of the 50 that are left are denied after the rest was put back")
		} else if err := r.Cancel(); err != nil {
			t.Errorf("Cancel: %v", err)
		}
		if r, _ := reserve(50); r == nil {
			t.Error("denied after all was put back")
		} else if err := r.Commit(70); err != nil { // 20 beyond
			t.Errorf("Commit of more: %v", err)
		}
		if r, d := c.Reserve(t.Context(), 0, tenant("a")); r != nil || d.Reason != ReasonInvalid {
			t.Errorf("nothing reserved: %+v, want invalid", d)
		}
		shut(t, c)
		for _, row := range s.allRows() {
			if row.Admitted > 0 && (row.Tenant != "a/b" || row.Limit != "requests" || row.Admitted != 80) {
				t.Errorf("row %+v, want 80 of requests for a/b", row)
			}
		}
		if got := s.billed(nil); got != 80 {
			t.Errorf("the ledger has %d units, want 80", got)
		}
	})
}

// A reservation that is all that a bucket is used for keeps its lease alive: what it gives back a while
// later can be spent. Many at once, for some of them are made after the loop looked at their bucket.
func TestReservationsKeepTheirLeases(t *testing.T) {
	daily := limit.Limit{
		Name: "daily", Algorithm: limit.FixedWindow,
		Rate: limit.Rate{Units: 100, Per: 24 * time.Hour, Calendar: limit.Day}, Burst: 100, Meter: "daily", By: []string{"user"},
	}
	bubble(t, plans(1, daily), func(t *testing.T, s *fake) {
		s.set(func(s *fake) { s.chunk = 0 }) // nothing but what is asked for, so that nothing else keeps the lease
		c := dial(t, s)
		c.Allow(t.Context(), tenant("a"), User("first")) // the tenant is known
		reserved := make([]*Reservation, 20)
		user := func(i int) Attribute { return User(fmt.Sprint(i)) }
		var all sync.WaitGroup
		for i := range reserved {
			all.Go(func() { reserved[i], _ = c.Reserve(t.Context(), 50, tenant("a"), user(i)) })
		}
		all.Wait()
		time.Sleep(3 * time.Second) // some terms
		for i, r := range reserved {
			if err := r.Cancel(); err != nil {
				t.Errorf("Cancel: %v", err)
			}
			admitted := 0
			for range 110 {
				if c.Allow(t.Context(), tenant("a"), user(i)).Allowed {
					admitted++
				}
			}
			if admitted != 100 {
				t.Errorf("%d admitted for user %d after all was put back, want 100", admitted, i)
			}
		}
		shut(t, c)
	})
}

// A reservation for longer than a bucket may be idle keeps its units: others are not given them.
func TestLongReservationsKeepTheirUnits(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 100)), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithIdle(10*time.Second), WithReportInterval(time.Second), WithReservationTime(time.Hour))
		r, _ := c.Reserve(t.Context(), 60, tenant("a"))
		if r == nil {
			t.Fatal("denied")
		}
		time.Sleep(10 * time.Minute)
		other := dial(t, s, WithAgent("gw-2"))
		if other.AllowN(t.Context(), 50, tenant("a")).Allowed {
			t.Error("50 more of 100 are admitted beside 60 that are reserved")
		}
		if err := r.Commit(60); err != nil {
			t.Errorf("Commit: %v", err)
		}
		shut(t, other)
		shut(t, c)
	})
}

// What nobody ends is cancelled in time, and reservations are bounded.
func TestReservationsExpire(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 100)), func(t *testing.T, s *fake) {
		c := dial(t, s, WithReservationTime(10*time.Second), WithMaxReservations(3), WithTenantShare(100))
		var all []*Reservation
		for i := range 4 {
			r, d := c.Reserve(t.Context(), 30, tenant("a"))
			if (r != nil) != (i < 3) || i == 3 && d.Reason != ReasonOverloaded {
				t.Errorf("reservation %d: %+v", i, d)
			}
			all = append(all, r)
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Second)
		if err := all[1].Commit(30); err != nil {
			t.Errorf("Commit in time: %v", err)
		}
		time.Sleep(4 * time.Second) // the first and the third are over
		for _, i := range []int{0, 2} {
			if err := all[i].Use(1); !errors.Is(err, ErrReservationEnded) {
				t.Errorf("Use too late: %v, want ErrReservationEnded", err)
			}
		}
		if st := c.Stats(); st.Expired != 2 || st.Reservations != 0 || st.UnitsReserved != 0 {
			t.Errorf("stats %+v, want two expired and none left", st)
		}
		shut(t, c)
		if got := s.billed(nil); got != 30 {
			t.Errorf("the ledger has %d units, want 30", got)
		}
	})
}

// Close cancels what lives, and does not wait for it.
func TestCloseCancelsReservations(t *testing.T) {
	slots := limit.Limit{Name: "in-flight", Algorithm: limit.Concurrency, Slots: 5}
	bubble(t, plans(1, hourly("requests", 100), slots), func(t *testing.T, s *fake) {
		c := dial(t, s)
		r, d := c.Reserve(t.Context(), 3, tenant("a"))
		if r == nil {
			t.Fatalf("%+v", d)
		}
		d.Done() // of a reservation it does nothing
		if d := c.AllowN(t.Context(), 3, tenant("a")); d.Allowed || d.Limit() != "in-flight" {
			t.Errorf("3 more of 5 slots: %+v by %q, want denied by in-flight", d, d.Limit())
		}
		began := time.Now()
		shut(t, c)
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := r.Commit(3); !errors.Is(err, ErrReservationEnded) {
			t.Errorf("Commit after Close: %v, want ErrReservationEnded", err)
		}
		if r, d := c.Reserve(t.Context(), 1, tenant("a")); r != nil || d.Reason != ReasonClosed {
			t.Errorf("after Close: %+v, want closed", d)
		}
		if got := s.billed(nil); got != 0 {
			t.Errorf("the ledger has %d units, want none", got)
		}
	})
}

// Of slots too a reservation counts what was committed, for the tenant whose request it was, and all of them are free when it
// ends: one that is cancelled was no start.
func TestReservationsOfSlotsCountWhatIsCommitted(t *testing.T) {
	bubble(t, plans(1, slots(5, 0, 0)), func(t *testing.T, s *fake) {
		s.tenants["a/b"] = limit.Tenant{ID: "a/b", Exists: true, Plan: "p", Parent: "a", Revision: 1}
		c := dial(t, s, WithReportInterval(50*time.Millisecond))
		for _, step := range []struct{ committed, started int64 }{{0, 0}, {2, 2}, {5, 7}, {9, 12}, {0, 12}} {
			r, d := c.Reserve(t.Context(), 5, tenant("a/b"))
			if r == nil {
				t.Fatalf("%+v, want all 5 slots, which are free", d)
			}
			time.Sleep(time.Second) // reported, renewed
			if err := r.Commit(step.committed); err != nil {
				t.Errorf("Commit(%d): %v", step.committed, err)
			}
			time.Sleep(time.Second)
			if got := s.billed(nil); got != step.started {
				t.Errorf("the ledger has %d starts after %d were committed, want %d", got, step.committed, step.started)
			}
		}
		shut(t, c)
		for _, row := range s.allRows() {
			if row.Admitted > 0 && row.Tenant != "a/b" {
				t.Errorf("row %+v, want all of a/b", row)
			}
		}
	})
}

// Reservations, requests, reports and renewals at once, with limits that deny each other's:
// the ledger has exactly what was admitted and committed.
func TestReservationsHammer(t *testing.T) {
	soft := hourly("soft", 40)
	soft.Rate, soft.Enforcement, soft.OveragePPM = perSecond(40), limit.Soft, 500_000
	hard := limit.Limit{Name: "hard", Rate: perSecond(500), Burst: 400, Meter: "hard", Match: []limit.Match{{Attribute: "method", Patterns: []string{"POST"}}}}
	user := limit.Limit{Name: "per-user", Rate: perSecond(200), Burst: 100, By: []string{"user"}}
	bubble(t, plans(1, soft, hard, user), func(t *testing.T, s *fake) {
		s.tenants["a/b"] = limit.Tenant{ID: "a/b", Exists: true, Plan: "p", Parent: "a", Revision: 1}
		c := dial(t, s, WithReportInterval(50*time.Millisecond), WithReservationTime(300*time.Millisecond))
		var mu sync.Mutex
		want := make(map[string]int64)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(11, uint64(g)))
				mine := make(map[string]int64)
				for range unraced.Some(800) {
					id := []string{"a", "a/b"}[rng.IntN(2)]
					method := []string{"GET", "POST"}[rng.IntN(2)]
					attrs := []Attribute{tenant(id), User(fmt.Sprint(rng.IntN(20))), Method(method)}
					count := func(n int64) {
						mine[id+" soft"] += n
						if method == "POST" {
							mine[id+" hard"] += n
						}
					}
					n := int64(1 + rng.IntN(4))
					if rng.IntN(3) == 0 {
						if c.AllowN(context.Background(), n, attrs...).Allowed {
							count(n)
						}
						continue
					}
					r, _ := c.Reserve(context.Background(), n, attrs...)
					if r == nil {
						continue
					}
					time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
					m := rng.Int64N(n + 2)
					if r.Commit(m) == nil {
						count(m)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				for k, n := range mine {
					want[k] += n
				}
			})
		}
		wg.Wait()
		shut(t, c)
		got := make(map[string]int64)
		for _, r := range s.allRows() {
			if r.Admitted > 0 {
				got[r.Tenant+" "+r.Limit] += r.Admitted
			}
		}
		for k, n := range want {
			if got[k] != n {
				t.Errorf("%s: the ledger has %d units, %d were admitted", k, got[k], n)
			}
		}
		if over := s.billed(func(r ledger.Row) bool { return r.Overage > 0 }); over == 0 {
			t.Error("nothing was above the soft limit: the test tests less than it says")
		}
		if st := c.Stats(); st.Expired == 0 || st.Reservations != 0 {
			t.Errorf("stats %+v, want some expired and none left", st)
		}
	})
}

// What was reserved and spent to the last unit is told of before the lease lapses: or the store would take it for what is
// still out, and after a long silence let the bucket refill for no longer than a lease lasts.
func TestReservationsThatSpentAllAreToldOf(t *testing.T) {
	l := limit.Limit{Name: "requests", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 60, Per: time.Minute, Calendar: limit.Minute}, Burst: 240}
	bubble(t, plans(1, l), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		r, d := c.Reserve(t.Context(), 240, tenant("a"))
		if r == nil {
			t.Fatalf("%+v, want all of it reserved", d)
		}
		time.Sleep(time.Second)
		if err := r.Commit(240); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		other := dial(t, s, WithAgent("gw-2"))
		if d := other.AllowN(t.Context(), 240, tenant("a")); !d.Allowed {
			t.Errorf("after five minutes at one a second: %+v with %d left, want all 240 again", d, d.Details().Remaining)
		}
		shut(t, c)
		shut(t, other)
	})
}

// So is what was granted for requests to come, and was spent to the last unit: after a long silence the bucket is full.
func TestStocksThatWereSpentToTheLastUnitAreToldOf(t *testing.T) {
	unraced.Only(t) // one goroutine asks
	for _, units := range []int64{600, 1200, 3600} {
		for n := int64(10); n < 40; n++ {
			l := limit.Limit{Name: "requests", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: units, Per: time.Hour, Calendar: limit.Hour}, Burst: 50}
			bubble(t, plans(1, l), func(t *testing.T, s *fake) {
				s.leases = memstore.New()
				c := dial(t, s)
				for range n {
					c.Allow(t.Context(), tenant("a"))
				}
				time.Sleep(10 * time.Minute)
				other := dial(t, s, WithAgent("gw-2"))
				if d := other.AllowN(t.Context(), 50, tenant("a")); !d.Allowed {
					t.Errorf("%d an hour, ten minutes after %d: %+v with %d left, want all 50 again", units, n, d, d.Details().Remaining)
				}
				shut(t, c)
				shut(t, other)
			})
		}
	}
}
