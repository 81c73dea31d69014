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

// Only what a request turned out to cost is learned: of a stream that was cut, that it would have cost more than the 40
// units that were reserved.
func TestWhatIsLearned(t *testing.T) {
	const before = 51 // of 50 units each
	more := func(t *testing.T, r *Reservation, cost string, n int64, allowed bool) {
		t.Helper()
		if d := r.Extend(t.Context(), 0, Cost{cost, n}); d.Allowed != allowed {
			t.Errorf("extended by %d of %s: %+v, want allowed: %v", n, cost, d, allowed)
		}
	}
	for name, c := range map[string]struct {
		ends func(t *testing.T, r *Reservation) error
		want int64
	}{
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
			more(t, r, "out", 900_000, false)
			return r.Commit(1, Cost{"out", 30})
		}, 43},
		"cut beyond": {func(t *testing.T, r *Reservation) error {
			more(t, r, "out", 10, true)
			more(t, r, "out", 900_000, false)
			return r.Commit(1, Cost{"out", 500})
		}, 511},
		"of another cost cut": {func(t *testing.T, r *Reservation) error {
			more(t, r, "in", 9_000_000, false)
			return r.Commit(1, Cost{"out", 30})
		}, 31},
		"cut, and then not": {func(t *testing.T, r *Reservation) error {
			more(t, r, "out", 900_000, false)
			more(t, r, "out", 10, true)
			return r.Commit(1, Cost{"out", 30})
		}, 31},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, guessed(1, 800_000), func(t *testing.T, s *fake) {
				s.leases = memstore.New()
				q := dial(t, s, WithReservationTime(time.Minute))
				taught(t, q, "small", 50)
				for range 25 {
					if err := c.ends(t, reserving(t, q, "small", 1, 40)); err != nil {
						t.Error(err)
					}
				}
				of := likelyKey(limit.Likely{Cost: "out", By: "model"}, []limit.Attribute{{Name: "model", Value: "small"}})
				if n, ok := q.likely.Quantile(of, 500_000); !ok || n != c.want {
					t.Errorf("half of the requests cost up to %d %v, want %d", n, ok, c.want)
				}
				shut(t, q)
			})
		})
	}
}

// What the policy says now is what counts, and what was learned stays.
func TestLikelyFollowsThePolicy(t *testing.T) {
	bubble(t, guessed(1, 100_000), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		taught(t, c, "small", 100)
		under := reserving(t, c, "small", 1, 1000)
		q := c.request(1, []Cost{{"out", 1000}}, attributesOf([]Attribute{model("small")})) // it may be decided again
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
