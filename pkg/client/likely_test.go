package client

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// guessed is a policy whose costs in and out have a limit each, and of out what is likely is reserved, by model.
func guessed(version, out int64) *limit.Policy {
	limits := []limit.Limit{hourly("requests", 10_000), hourly("in", 1_000_000), hourly("out", out)}
	for i, cost := range []string{"in", "out"} {
		limits[1+i].Cost.Weights = []limit.Weight{{Cost: cost, Micros: limit.Micro}}
	}
	p := plans(version, limits...)
	for i := range limits {
		limits[i].Enforcement, limits[i].EpsilonPPM = limit.Strict, 0
	}
	p.Costs = []string{"in", "out"}
	p.Likely = []limit.Likely{{Cost: "out", QuantilePPM: 950_000, By: "model"}}
	return p
}

// asking reserves for a tenant's request of a model that costs out tokens at most; d is why not.
func asking(t *testing.T, c *Client, of, m string, out int64) (*Reservation, Decision) {
	t.Helper()
	return c.ReserveRequest(t.Context(), costing(0, []Cost{{"out", out}}, []Attribute{tenant(of), model(m)}))
}

// reserving reserves for a request of a model that costs at most so much.
func reserving(t *testing.T, c *Client, m string, in, out int64) *Reservation {
	t.Helper()
	r, d := c.ReserveRequest(t.Context(), costing(1, []Cost{{"out", out}, {"in", in}}, []Attribute{tenant("a"), model(m)}))
	if r == nil {
		t.Fatalf("a request of %s with %d tokens out: %+v by %s", m, out, d, d.Limit())
	}
	return r
}

// taught has twenty requests of a model cost so much.
func taught(t *testing.T, c *Client, m string, out int64) {
	t.Helper()
	for range 20 {
		if err := reserving(t, c, m, 1, 1000).Commit(1, Cost{"in", 1}, Cost{"out", out}); err != nil {
			t.Fatal(err)
		}
	}
}

// Once twenty requests of a model are known, the next reserve what is likely: the rest is for others.
func TestReserveWhatIsLikely(t *testing.T) {
	bubble(t, guessed(1, 10_000), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		check := func(what string, r *Reservation, requests, in, out int64) {
			t.Helper()
			for cost, want := range map[string]int64{"requests": requests, "in": in, "out": out, "bytes": 0} {
				if got := r.Reserved(cost); got != want {
					t.Errorf("%s: %d of %s are reserved, want %d", what, got, cost, want)
				}
			}
		}
		for i := range 20 {
			r := reserving(t, c, "small", 7, 1000)
			check("a request before twenty are known", r, 1, 7, 1000)
			if err := r.Commit(1, Cost{"in", 7}, Cost{"out", 81 + int64(i)}); err != nil {
				t.Fatal(err)
			}
			check("a committed one", r, 0, 0, 0)
		}
		first := reserving(t, c, "small", 7, 1000) // 99 is in the bucket of 96 to 103
		check("a request afterwards", first, 1, 7, 103)
		check("one that costs at most less", reserving(t, c, "small", 7, 50), 1, 7, 50)
		check("one of another model", reserving(t, c, "large", 7, 1000), 1, 7, 1000)
		check("no reservation", nil, 0, 0, 0)
		if d := first.Extend(t.Context(), 0, Cost{"out", 25}); !d.Allowed {
			t.Errorf("extended: %+v", d)
		}
		if d := first.Extend(t.Context(), 1, Cost{"in", 3}); !d.Allowed {
			t.Errorf("extended: %+v", d)
		}
		check("an extended one", first, 2, 10, 128)
		if d := first.Extend(t.Context(), 0, Cost{"out", 1}, Cost{"in", limit.MaxUnits}); d.Allowed {
			t.Error("a budget's units are allowed at once")
		}
		check("one that was denied more", first, 2, 10, 128)
		// 10000 − 20 × 81…100 − 128 − 50 − 1000
		if d := c.Decide(t.Context(), costing(0, []Cost{{"out", 7013}}, []Attribute{tenant("a")})); d.Allowed {
			t.Error("more than the rest is allowed")
		}
		if d := c.Decide(t.Context(), costing(0, []Cost{{"out", 7012}}, []Attribute{tenant("a")})); !d.Allowed {
			t.Errorf("the rest: %+v by %s", d, d.Limit())
		}
		shut(t, c)
		check("one that Close ended", first, 0, 0, 0)
		if got := s.billed(func(r ledger.Row) bool { return r.Meter == "out" }); got != 1810+7012 {
			t.Errorf("%d units are billed, want %d", got, 1810+7012)
		}
	})
}

// Only what a request turned out to cost is learned, of reservations of 60 units. A stream that a limit cut would have
// cost more. One that came to its most would have cost that at least: below what is likely that says nothing.
func TestWhatIsLearned(t *testing.T) {
	const (
		before  = 51 // of 50 units each
		allowed = ^Reason(0)
	)
	more := func(t *testing.T, r *Reservation, cost string, n int64, denied Reason) {
		t.Helper()
		if d := r.Extend(t.Context(), 0, Cost{cost, n}); d.Allowed != (denied == allowed) || !d.Allowed && d.Reason != denied {
			t.Errorf("extended by %d of %s: %+v, want %s", n, cost, d, denied)
		}
	}
	whole := func(t *testing.T, c *Client) *Reservation {
		q := costing(1, []Cost{{"in", 1}, {"out", 60}}, []Attribute{tenant("a"), model("small")})
		q.Whole = true
		r, d := c.ReserveRequest(t.Context(), q)
		if got := r.Reserved("out"); got != 60 {
			t.Fatalf("%d units of the whole are reserved, want 60: %+v", got, d)
		}
		return r
	}
	for name, c := range map[string]struct {
		ends func(t *testing.T, r *Reservation) error
		want int64
	}{
		"to its most": {func(_ *testing.T, r *Reservation) error { return r.Commit(1, Cost{"out", 60}) }, 63},
		"denied for ever": {func(t *testing.T, r *Reservation) error {
			more(t, r, "out", 900_000, ReasonTooLarge)
			return r.Commit(1, Cost{"out", 30})
		}, 31},
		"cut early": {func(t *testing.T, r *Reservation) error {
			more(t, r, "out", 799_000, ReasonLimit)
			return r.Commit(1, Cost{"out", 20})
		}, before},
		"committed":         {func(_ *testing.T, r *Reservation) error { return r.Commit(1, Cost{"out", 500}) }, 511},
		"below":             {func(_ *testing.T, r *Reservation) error { return r.Commit(1, Cost{"out", 30}) }, 31},
		"without any":       {func(_ *testing.T, r *Reservation) error { return r.Commit(1) }, 0},
		"nothing committed": {func(_ *testing.T, r *Reservation) error { return r.Commit(0) }, before},
		"cancelled":         {func(_ *testing.T, r *Reservation) error { return r.Cancel() }, before},
		"expired": {func(_ *testing.T, r *Reservation) error {
			err := r.Use(1, Cost{"out", 500})
			time.Sleep(2 * time.Minute)
			return err
		}, before},
		"late": {func(_ *testing.T, r *Reservation) error {
			time.Sleep(2 * time.Minute)
			return errors.Join(r.Commit(1, Cost{"out", 500}), r.Commit(1, Cost{"out", 500}))
		}, 511},
		"cut": {func(t *testing.T, r *Reservation) error {
			more(t, r, "out", 799_000, ReasonLimit)
			return r.Commit(1, Cost{"out", 30})
		}, 63},
		"cut beyond": {func(t *testing.T, r *Reservation) error {
			more(t, r, "out", 10, allowed)
			more(t, r, "out", 799_000, ReasonLimit)
			return r.Commit(1, Cost{"out", 500})
		}, 511},
		"of another cost cut": {func(t *testing.T, r *Reservation) error {
			more(t, r, "in", 999_990, ReasonLimit)
			return r.Commit(1, Cost{"out", 30})
		}, 31},
		"cut, and then not": {func(t *testing.T, r *Reservation) error {
			more(t, r, "out", 799_000, ReasonLimit)
			more(t, r, "out", 10, allowed)
			return r.Commit(1, Cost{"out", 30})
		}, 31},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, guessed(1, 800_000), func(t *testing.T, s *fake) {
				s.leases = memstore.New()
				q := dial(t, s, WithReservationTime(time.Minute))
				taught(t, q, "small", 50)
				for range 25 {
					if err := c.ends(t, whole(t, q)); err != nil {
						t.Error(err)
					}
				}
				of := likelyKey(limit.Likely{Cost: "out", By: "model"}, []limit.Attribute{{Name: "tenant", Value: "a"}, {Name: "model", Value: "small"}})
				if n, ok := q.likely.Quantile(of, 500_000); !ok || n != c.want {
					t.Errorf("half of the requests cost up to %d %v, want %d", n, ok, c.want)
				}
				shut(t, q)
			})
		})
	}
}

// Most requests say that they cost one unit at most, and cost it: those that may cost more are not to be cut for that.
func TestASmallMostSaysNothing(t *testing.T) {
	bubble(t, guessed(1, 1_000_000), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		last := int64(0)
		for i := range 1200 {
			most, cost := int64(1), int64(1)
			if i%25 == 0 {
				most, cost = 4096, 2000
			}
			r, d := asking(t, c, "a", "small", most)
			if r == nil {
				t.Fatal(d)
			}
			if i%25 == 0 {
				if last = r.Reserved("out"); last < cost {
					t.Errorf("request %d: %d are reserved, want %d", i, last, cost)
				}
			}
			if err := r.Commit(0, Cost{"out", cost}); err != nil {
				t.Fatal(err)
			}
		}
		if last != 2047 {
			t.Errorf("at last %d are reserved, want 2047, which is learned", last)
		}
		shut(t, c)
	})
}

// What one tenant commits changes nothing for another.
func TestTenantsLearnApart(t *testing.T) {
	bubble(t, guessed(1, 10_000), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		s.tenants["evil"] = limit.Tenant{ID: "evil", Exists: true, Plan: "p", Revision: 1}
		c := dial(t, s)
		for range 40 {
			r, d := asking(t, c, "evil", "small", 1000)
			if r == nil {
				t.Fatal(d)
			}
			if err := r.Commit(0, Cost{"out", 1}); err != nil {
				t.Fatal(err)
			}
		}
		for of, want := range map[string]int64{"evil": 1, "a": 1000} {
			if r, _ := asking(t, c, of, "small", 1000); r.Reserved("out") != want {
				t.Errorf("tenant %s reserves %d, want %d", of, r.Reserved("out"), want)
			}
		}
		shut(t, c)
	})
}

// Streams that a limit cut before they used what they had do not raise what is reserved.
func TestCutsBeforeTheEndDoNotClimb(t *testing.T) {
	bubble(t, guessed(1, 1_000_000), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		taught(t, c, "small", 50)
		hold, d := asking(t, c, "a", "other", 900_000)
		if hold == nil {
			t.Fatal(d)
		}
		for i := range 2000 {
			r, d := asking(t, c, "a", "small", 4096)
			if r == nil {
				t.Fatal(i, d)
			}
			if got := r.Reserved("out"); got > 51 {
				t.Fatalf("request %d reserves %d; none cost more than 50", i, got)
			}
			if i%12 == 0 {
				if d := r.Extend(t.Context(), 0, Cost{"out", 200_000}); d.Reason != ReasonLimit {
					t.Fatal(d)
				}
			}
			if err := r.Commit(0, Cost{"out", 5}); err != nil {
				t.Fatal(err)
			}
		}
		shut(t, c)
	})
}

// A request that says more than a limit holds at once is admitted with the policy's first, and learned from.
func TestFirst(t *testing.T) {
	p := guessed(1, 500)
	p.Likely[0].First = 64
	bubble(t, p, func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		for i := range 20 {
			r, d := asking(t, c, "a", "small", 4096)
			if got := r.Reserved("out"); got != 64 {
				t.Fatalf("request %d: %d are reserved, want 64: %+v", i, got, d)
			}
			if err := r.Commit(0, Cost{"out", 5}); err != nil {
				t.Fatal(err)
			}
		}
		for most, want := range map[int64]int64{4096: 5, 3: 3} {
			if r, d := asking(t, c, "a", "small", most); r.Reserved("out") != want {
				t.Errorf("of %d at most %d are reserved, want %d: %+v", most, r.Reserved("out"), want, d)
			}
		}
		if r, _ := asking(t, c, "a", "large", 63); r.Reserved("out") != 63 {
			t.Errorf("of 63 at most %d are reserved", r.Reserved("out"))
		}
		q := costing(0, []Cost{{"out", 4096}}, []Attribute{tenant("a"), model("large")})
		q.Whole = true
		if _, d := c.ReserveRequest(t.Context(), q); d.Reason != ReasonTooLarge {
			t.Errorf("the whole of 4096: %+v, want too large", d)
		}
		shut(t, c)
	})
}

// What the policy says now is what counts, and what was learned stays.
func TestLikelyFollowsThePolicy(t *testing.T) {
	bubble(t, guessed(1, 100_000), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		taught(t, c, "small", 100)
		under := reserving(t, c, "small", 1, 1000)
		q := c.request(1, []Cost{{"out", 1000}}, attributesOf([]Attribute{tenant("a"), model("small")})) // it may be decided again
		q.reserves = &Reservation{most: []int64{1000}}
		for i, likely := range []limit.Likely{guessed(1, 1).Likely[0], {}} {
			want := []int64{103, 1000}[i]
			if q.likely(limit.NewCosts([]string{"out"}, likely)); q.costs[0].Units != want {
				t.Errorf("under %+v a request takes %d, want %d", likely, q.costs[0].Units, want)
			}
		}
		for i, change := range []struct {
			likely []limit.Likely
			want   int64
		}{
			{nil, 1000},
			{[]limit.Likely{{Cost: "out", QuantilePPM: 950_000, By: "model"}}, 103},
			{[]limit.Likely{{Cost: "out", QuantilePPM: 950_000}}, 1000}, // of all models: it is another sketch
			{[]limit.Likely{{Cost: "in", QuantilePPM: 950_000, By: "model"}}, 1000},
		} {
			p := guessed(int64(2+i), 100_000)
			p.Likely = change.likely
			s.apply(p)
			time.Sleep(time.Second)
			r := reserving(t, c, "small", 1, 1000)
			if got := r.Reserved("out"); got != change.want {
				t.Errorf("under %+v %d are reserved, want %d", change.likely, got, change.want)
			}
			if err := r.Cancel(); err != nil {
				t.Error(err)
			}
		}
		if err := under.Commit(1, Cost{"out", 60}); err != nil {
			t.Error(err)
		}
		// A quantile of nothing reserves a unit all the same: with none it would only look.
		p := guessed(9, 100_000)
		s.apply(p)
		time.Sleep(time.Second)
		for range 20 {
			r, d := c.ReserveRequest(t.Context(), costing(0, []Cost{{"out", 10}}, []Attribute{tenant("a"), model("none")}))
			if r == nil {
				t.Fatalf("%+v", d)
			}
			if err := r.Commit(1); err != nil {
				t.Error(err)
			}
		}
		r, _ := c.ReserveRequest(t.Context(), costing(0, []Cost{{"out", 10}}, []Attribute{tenant("a"), model("none")}))
		if got := r.Reserved("out"); got != 1 {
			t.Errorf("of a cost that is always 0, %d are reserved, want 1", got)
		}
		shut(t, c)
	})
}

// Many gateways' requests reserve, extend and end at once; run with the race detector. Everything committed is billed.
func TestLikelyIsShared(t *testing.T) {
	bubble(t, guessed(1, 50_000), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		var all sync.WaitGroup
		var spent atomic.Int64
		for g := range 8 {
			all.Go(func() {
				random := rand.New(rand.NewPCG(5, uint64(g)))
				for range 100 {
					r, _ := c.ReserveRequest(t.Context(), costing(1, []Cost{{"out", 500}}, []Attribute{tenant("a"), model([]string{"small", "large"}[random.IntN(2)])}))
					if r == nil {
						continue
					}
					var other sync.WaitGroup
					other.Go(func() { _ = r.Reserved("out") })
					n := 1 + random.Int64N(400)
					for r.Reserved("out") < n && r.Extend(t.Context(), 0, Cost{"out", 50}).Allowed {
					}
					n = min(n, r.Reserved("out"))
					if err := r.Commit(1, Cost{"out", n}); err != nil {
						t.Error(err)
					}
					spent.Add(n)
					other.Wait()
				}
			})
		}
		all.Wait()
		shut(t, c)
		if got := s.billed(func(r ledger.Row) bool { return r.Meter == "out" }); got != spent.Load() || got > 50_000 || got < 45_000 {
			t.Errorf("%d units are billed, %d were committed; want as many, and nearly the budget", got, spent.Load())
		}
	})
}
