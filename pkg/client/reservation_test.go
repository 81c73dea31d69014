package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// What is extended is reserved as well, all or nothing, and what is committed is billed.
func TestReservationsAreExtended(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 100)), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		r, _ := c.Reserve(t.Context(), 10, tenant("a"))
		for _, step := range []struct {
			n       int64
			allowed bool
			reason  Reason
		}{{20, true, ReasonLimit}, {100, false, ReasonLimit}, {60, true, ReasonLimit}, {0, false, ReasonInvalid}, {-1, false, ReasonInvalid}, {1 << 40, false, ReasonInvalid}} {
			if d := r.Extend(t.Context(), step.n); d.Allowed != step.allowed || !d.Allowed && d.Reason != step.reason && step.n != 100 {
				t.Errorf("extended by %d: %+v, want %v", step.n, d, step.allowed)
			}
		}
		if st := c.Stats(); st.UnitsReserved != 90 || st.Reservations != 1 {
			t.Errorf("stats %+v, want 90 units reserved", st)
		}
		if d := c.AllowN(t.Context(), 11, tenant("a")); d.Allowed {
			t.Error("11 of the 10 that are left are allowed")
		}
		if err := r.Commit(25); err != nil {
			t.Error(err)
		}
		if d := r.Extend(t.Context(), 1); d.Allowed || d.Reason != ReasonInvalid {
			t.Errorf("extended after its end: %+v, want invalid", d)
		}
		if d := c.AllowN(t.Context(), 75, tenant("a")); !d.Allowed {
			t.Errorf("75 of the 75 that are left: %+v", d)
		}
		shut(t, c)
		if got := s.billed(nil); got != 100 {
			t.Errorf("the ledger has %d units, want 25 and 75", got)
		}
	})
}

// A reservation that is extended after its window's end has units of both: each pays what was reserved of it, and the
// last one the excess.
func TestExtensionsAreOfTheirOwnWindow(t *testing.T) {
	w := limit.Limit{Name: "windowed", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: time.Minute}, Burst: 100, Meter: "windowed"}
	bubble(t, plans(1, w), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		r, d := c.Reserve(t.Context(), 40, tenant("a"))
		if r == nil {
			t.Fatalf("%+v", d)
		}
		time.Sleep(61 * time.Second)
		if r, _ = c.Reserve(t.Context(), 40, tenant("a")); r == nil {
			t.Fatal("denied in the next window")
		}
		time.Sleep(50 * time.Second)
		if d := r.Extend(t.Context(), 30); !d.Allowed {
			t.Fatalf("extended: %+v", d)
		}
		if err := r.Commit(75); err != nil { // 5 beyond
			t.Error(err)
		}
		time.Sleep(time.Second)
		left := 0
		for c.Allow(t.Context(), tenant("a")).Allowed {
			left++
		}
		if left < 20 || left > 100 {
			t.Errorf("%d units are left of the window", left)
		}
		shut(t, c)
		if got := s.billed(nil); got != int64(75+left) {
			t.Errorf("the ledger has %d units, want %d", got, 75+left)
		}
	})
}

// Expiry bills what was used. A Commit that comes later is billed above that, and says that it was late. The same totals
// again are nil, others are refused.
func TestWhatIsUsedIsBilledAtTheExpiry(t *testing.T) {
	for _, c := range []struct {
		use, commit, billed int64
	}{{12, 20, 20}, {12, 12, 12}, {12, 5, 12}, {0, 0, 0}, {0, 7, 7}, {35, 50, 50}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			bubble(t, plans(1, hourly("requests", 100)), func(t *testing.T, s *fake) {
				s.leases = memstore.New()
				q := dial(t, s, WithReportInterval(50*time.Millisecond))
				r, _ := q.ReserveRequest(t.Context(), Request{Units: 30, Attributes: []Attribute{tenant("a")}, Expires: 5 * time.Second})
				for _, n := range []int64{c.use / 2, c.use, c.use / 3} { // it only rises
					if err := r.Use(n); err != nil {
						t.Error(err)
					}
				}
				if err := r.Use(-1); !errors.Is(err, ErrCost) {
					t.Errorf("used below 0: %v, want ErrCost", err)
				}
				time.Sleep(4 * time.Second)
				if got := s.billed(nil); got != 0 {
					t.Errorf("%d units are billed before the reservation ends", got)
				}
				time.Sleep(2 * time.Second)
				if got := s.billed(nil); got != c.use {
					t.Errorf("%d units are billed at the expiry, want %d", got, c.use)
				}
				if again, ok := q.Reservation(r.ID()); !ok || again != r {
					t.Error("the reservation is not known after its end")
				}
				if n, _ := r.Totals(); n != c.use || r.Late() {
					t.Errorf("%d used, late %v, before it was committed", n, r.Late())
				}
				for range 2 {
					if err := r.Commit(c.commit); err != nil || !r.Late() {
						t.Errorf("committed late: %v, late %v", err, r.Late())
					}
				}
				if err := r.Commit(c.commit + 1); !errors.Is(err, ErrReservationEnded) {
					t.Errorf("committed with another cost: %v, want ErrReservationEnded", err)
				}
				if d := q.AllowN(t.Context(), 100-c.billed, tenant("a")); !d.Allowed {
					t.Errorf("%d of the units left: %+v", 100-c.billed, d)
				}
				shut(t, q)
				if got := s.billed(nil); got != 100 {
					t.Errorf("the ledger has %d units, want 100", got)
				}
			})
		})
	}
}

// Each reservation lasts as long as it says, and is known for ten minutes after its end.
func TestReservationsLastAsLongAsTheySay(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 1000)), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithReservationTime(time.Minute))
		reserve := func(lasts time.Duration) *Reservation {
			r, d := c.ReserveRequest(t.Context(), Request{Units: 1, Attributes: []Attribute{tenant("a")}, Expires: lasts})
			if r == nil && d.Reason != ReasonInvalid {
				t.Errorf("for %v: %+v", lasts, d)
			}
			return r
		}
		for _, lasts := range []time.Duration{-1, time.Millisecond, time.Hour + 1} {
			if reserve(lasts) != nil {
				t.Errorf("reserved for %v, want invalid", lasts)
			}
		}
		want := []time.Duration{time.Hour, 0, time.Second, 30 * time.Second, 0, 2 * time.Second}
		var all []*Reservation
		for _, lasts := range want {
			all = append(all, reserve(lasts))
		}
		began := time.Now()
		for _, at := range []time.Duration{900 * time.Millisecond, 1100 * time.Millisecond, 3 * time.Second, 31 * time.Second, 61 * time.Second, 59 * time.Minute, 61 * time.Minute} {
			time.Sleep(at - time.Since(began))
			for i, r := range all {
				lasts := want[i]
				if lasts == 0 {
					lasts = time.Minute
				}
				if r.lives() != (at < lasts) {
					t.Errorf("after %v one of %v lives: %v", at, lasts, r.lives())
				}
				if _, known := c.Reservation(r.ID()); known != (at < lasts+ReservationKnown) {
					t.Errorf("after %v one of %v is known: %v", at, lasts, known)
				}
			}
		}
		if err := all[2].Commit(1); !errors.Is(err, ErrReservationEnded) {
			t.Errorf("committed after an hour: %v, want ErrReservationEnded", err)
		}
		if err := all[0].Commit(1); err != nil {
			t.Errorf("committed a minute late: %v", err)
		}
		shut(t, c)
		if got := s.billed(nil); got != 1 {
			t.Errorf("the ledger has %d units, want 1", got)
		}
	})
}

// A reservation keeps little of its request, however long that is, and what it commits late is of the same bucket.
func TestReservationsKeepLittleOfTheirRequest(t *testing.T) {
	user := hourly("per-user", 100)
	user.By = []string{"user"}
	bubble(t, plans(1, user), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		who := User(strings.Repeat("u", 1<<20))
		r, d := c.ReserveRequest(t.Context(), Request{Units: 30, Attributes: []Attribute{tenant("a"), who}, Expires: time.Second})
		if r == nil {
			t.Fatalf("%+v", d)
		}
		if n := len(r.attrs[1].Value); n > limit.MaxValueLen {
			t.Errorf("it keeps %d bytes of a value", n)
		}
		time.Sleep(2 * time.Second)
		if err := r.Commit(40); err != nil {
			t.Error(err)
		}
		if d := c.AllowN(t.Context(), 61, tenant("a"), who); d.Allowed {
			t.Error("61 of the 60 that are left of the bucket are allowed")
		}
		many := slices.Repeat([]Attribute{{"x", "y"}}, maxAttributes)
		if r, d := c.ReserveRequest(t.Context(), Request{Units: 1, Attributes: append(many, tenant("a"))}); r != nil || d.Reason != ReasonInvalid {
			t.Errorf("with 65 attributes: %+v, want invalid", d)
		}
		shut(t, c)
		if got := s.billed(nil); got != 40 {
			t.Errorf("the ledger has %d units, want 40", got)
		}
	})
}

// A tenant has no more than its share of the table, of those that live and of those that are remembered. All of it is
// bounded.
func TestTheTableOfReservationsIsShared(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 1000)), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		for _, id := range []string{"b", "c"} {
			s.tenants[id] = limit.Tenant{ID: id, Exists: true, Plan: "p", Revision: 1}
		}
		c := dial(t, s, WithMaxReservations(10), WithTenantShare(50))
		reserve := func(id string, want Reason) *Reservation {
			t.Helper()
			r, d := c.Reserve(t.Context(), 1, tenant(id))
			if d.Reason != want {
				t.Errorf("tenant %s: %+v, want %v", id, d, want)
			}
			return r
		}
		first := reserve("a", ReasonLimit)
		if err := first.Commit(1); err != nil {
			t.Error(err)
		}
		for range 5 {
			reserve("a", ReasonLimit)
		}
		reserve("a", ReasonOverloaded)
		for range 5 {
			reserve("b", ReasonLimit)
		}
		reserve("c", ReasonOverloaded)
		for number := range int64(2) {
			other, _ := c.Reservation(ReservationID{first.ID().Epoch, 2 + number})
			if err := other.Commit(1); err != nil {
				t.Error(err)
			}
		}
		reserve("c", ReasonLimit)
		for range 200 {
			r, d := c.Reserve(t.Context(), 1, tenant("a"))
			if r == nil {
				t.Fatalf("%+v", d)
			}
			if err := r.Cancel(); err != nil {
				t.Error(err)
			}
			c.reserved.mu.Lock()
			byID, ended := len(c.reserved.byID), c.reserved.ended.Len()
			c.reserved.mu.Unlock()
			if byID > 10+ended || ended > 20 {
				t.Fatalf("%d are known, %d of them ended, want 20 of one tenant at most", byID, ended)
			}
		}
		if _, ok := c.Reservation(first.ID()); ok {
			t.Error("the first is known after a hundred of its tenant ended")
		}
		shut(t, c)
	})
}

// Eight first requests at once against a budget for one: one is admitted, and nothing is overspent.
func TestEightFirstRequestsAgainstABudgetForOne(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 1000)), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		var all sync.WaitGroup
		got := make([]*Reservation, 8)
		for i := range got {
			all.Go(func() {
				var d Decision
				if got[i], d = c.Reserve(t.Context(), 800, tenant("a")); got[i] == nil && d.Limit() != "requests" {
					t.Errorf("%+v by %q, want denied by requests", d, d.Limit())
				}
			})
		}
		all.Wait()
		admitted := 0
		for _, r := range got {
			if r != nil {
				admitted++
				if err := r.Commit(700); err != nil {
					t.Error(err)
				}
			}
		}
		if admitted != 1 {
			t.Errorf("%d were admitted, want 1", admitted)
		}
		shut(t, c)
		if got := s.billed(nil); got != 700 {
			t.Errorf("the ledger has %d units, want 700", got)
		}
	})
}

// Use, Extend, Commit, expiry and Close race: the ledger has of each reservation what was committed, or what was used
// and nothing committed beyond, to the unit.
func TestReservationsRace(t *testing.T) {
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint("closes ", closes), func(t *testing.T) {
			bubble(t, plans(1, hourly("requests", 1_000_000)), func(t *testing.T, s *fake) {
				s.leases = memstore.New()
				c := dial(t, s, WithReservationTime(20*time.Millisecond), WithReportInterval(30*time.Millisecond))
				c.Allow(t.Context(), tenant("a")) // the tenant is known
				var mu sync.Mutex
				want := int64(1)
				var all sync.WaitGroup
				for worker := range 6 {
					all.Go(func() {
						rng := rand.New(rand.NewPCG(uint64(worker), 46))
						for range 40 {
							r, _ := c.Reserve(t.Context(), 1+rng.Int64N(30), tenant("a"))
							if r == nil {
								return // closed
							}
							n := race(r, rng)
							mu.Lock()
							want += n
							mu.Unlock()
						}
					})
				}
				if closes {
					time.Sleep(150 * time.Millisecond)
					shut(t, c)
				}
				all.Wait()
				if !closes {
					shut(t, c)
				}
				if st := c.Stats(); st.Reservations != 0 || st.UnitsReserved != 0 {
					t.Errorf("stats %+v, want no reservation left", st)
				}
				if got := s.billed(nil); got != want {
					t.Errorf("the ledger has %d units, want %d", got, want)
				}
			})
		})
	}
}

// race uses, extends and commits a reservation at once, about when it expires, and returns what is to be billed of it.
func race(r *Reservation, rng *rand.Rand) (billed int64) {
	var all sync.WaitGroup
	var mu sync.Mutex
	used, committed := int64(0), int64(-1)
	later := func(f func()) {
		wait := time.Duration(rng.Int64N(int64(30 * time.Millisecond)))
		all.Go(func() {
			time.Sleep(wait)
			f()
		})
	}
	for range 2 {
		n, more, m := rng.Int64N(40), 1+rng.Int64N(10), rng.Int64N(50)
		later(func() {
			if r.Use(n) == nil {
				mu.Lock()
				used = max(used, n)
				mu.Unlock()
			}
		})
		later(func() { r.Extend(context.Background(), more) })
		later(func() {
			if r.Commit(m) == nil {
				mu.Lock()
				committed = m
				mu.Unlock()
			}
		})
	}
	all.Wait()
	switch {
	case committed < 0:
		time.Sleep(25 * time.Millisecond) // it has expired, or the client is closed
		return used
	case r.Late():
		return max(used, committed)
	}
	return committed
}

// A limit whose meter the policy changes between a reservation and its extension, in the next window, counts it once.
func TestAMeterThatChangesIsNotBilledTwice(t *testing.T) {
	windowed := func(meter string) limit.Limit {
		return limit.Limit{Name: "windowed", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: time.Minute}, Burst: 100, Meter: meter}
	}
	for what, then := range map[string]string{"another meter": "m2", "no meter": ""} {
		t.Run(what, func(t *testing.T) {
			bubble(t, plans(1, windowed("m1")), func(t *testing.T, s *fake) {
				s.leases = memstore.New()
				c := dial(t, s, WithReportInterval(50*time.Millisecond))
				r, _ := c.ReserveRequest(t.Context(), Request{Units: 40, Attributes: []Attribute{tenant("a")}, Expires: 10 * time.Minute})
				s.apply(plans(2, windowed(then)))
				time.Sleep(70 * time.Second)
				if d := r.Extend(t.Context(), 30); !d.Allowed {
					t.Fatalf("extended: %+v %s", d, d.Reason)
				}
				if spent, err := r.split(r.claims, []int64{60}); err != nil || len(spent) != 2 || spent[0]+spent[1] != 60 {
					t.Errorf("60 units are %d of its claims, %v; want 60 of two", spent, err)
				}
				if err := r.Commit(60); err != nil {
					t.Error(err)
				}
				shut(t, c)
				if got := s.billed(nil); then != "" && got != 60 {
					t.Errorf("the ledger has %d units, want 60: %+v", got, s.allRows())
				}
			})
		})
	}
}
