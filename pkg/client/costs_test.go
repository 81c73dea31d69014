package client

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// costly is a policy of requests, tokens in and out, whose limits hardly refill while a test runs: one counts requests,
// one tokens out, one a sum, and one a sum by model.
func costly(requests, out, sum, byModel int64) *limit.Policy {
	weights := func(in, out int64) []limit.Weight {
		return []limit.Weight{{Cost: "in", Micros: in}, {Cost: "out", Micros: out}}
	}
	limits := []limit.Limit{hourly("requests", requests), hourly("out", out), hourly("sum", sum), hourly("model", byModel)}
	limits[1].Cost.Weights = weights(0, limit.Micro)[1:]
	limits[2].Cost.Weights = weights(limit.Micro, 4_500_000)
	limits[3].Cost = limit.Weighing{By: "model", Rows: []limit.WeighingRow{
		{Value: "small", Weights: weights(150_000, 600_000)}, {Value: "large", Weights: weights(3_000_000, 15_000_000)}, {Value: "free", Weights: weights(0, 0)},
	}}
	p := plans(1, limits...)
	for i := range limits {
		limits[i].Enforcement, limits[i].EpsilonPPM = limit.Strict, 0
	}
	p.Costs = []string{"in", "out"}
	return p
}

func costing(n int64, costs []Cost, attributes []Attribute) Request {
	return Request{Units: n, Costs: costs, Attributes: attributes}
}

func model(name string) Attribute { return Attribute{"model", name} }

// A request takes of each limit what that makes of its costs, all or nothing, and each meter has its limit's units.
func TestDecideByCosts(t *testing.T) {
	bubble(t, costly(100, 1000, 10_000, 500), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithReportInterval(50*time.Millisecond))
		decide := func(m string, n, in, out int64) Decision {
			return c.Decide(t.Context(), costing(n, []Cost{{"in", in}, {"out", out}}, []Attribute{tenant("a"), model(m)}))
		}
		for i := range 6 { // of the same attributes: known from the third on
			if d := decide("small", 1, 101, 50); !d.Allowed || d.Reason != ReasonLimit {
				t.Errorf("request %d: %+v %s", i, d, d.Reason)
			}
		}
		// 6 requests; 300 of 1000 out; 6 × (101 + 225) = 1956; 6 × ⌈15.15 + 30⌉ = 276 of 500.
		if d := decide("small", 1, 0, 701); d.Allowed || d.Limit() != "out" || d.Details().Cost != "out" {
			t.Errorf("701 of the 700 tokens left: %+v by %s", d, d.Limit())
		}
		if d := decide("large", 1, 75, 0); d.Allowed || d.Limit() != "model" || d.Details().Cost != "" { // 225 of 224
			t.Errorf("225 of the 224 left by model: %+v by %s", d, d.Limit())
		}
		if d := decide("large", 0, 74, 0); !d.Allowed {
			t.Errorf("222 of the 224 left by model: %+v by %s", d, d.Limit())
		}
		if d := decide("free", 0, 0, 700); !d.Allowed { // and 3150 of the sum
			t.Errorf("the last 700 tokens: %+v by %s", d, d.Limit())
		}
		// A limit of which it needs nothing does not deny it, though nothing is left there.
		if d := decide("free", 1, 0, 0); !d.Allowed {
			t.Errorf("a request without tokens: %+v by %s", d, d.Limit())
		}
		if d := decide("free", 0, 0, 1); d.Allowed || d.Limit() != "out" {
			t.Errorf("a token of none: %+v by %s", d, d.Limit())
		}
		if d := c.Allow(t.Context(), tenant("a"), model("free")); !d.Allowed {
			t.Errorf("Allow: %+v by %s", d, d.Limit())
		}
		shut(t, c)
		for meter, want := range map[string]int64{"requests": 8, "out": 1000, "sum": 1956 + 74 + 3150, "model": 276 + 222} {
			if got := s.billed(func(r ledger.Row) bool { return r.Meter == meter }); got != want {
				t.Errorf("meter %s has %d units, want %d", meter, got, want)
			}
		}
	})
}

// What cannot be is refused, takes nothing, and ends no reservation.
func TestInvalidCosts(t *testing.T) {
	bubble(t, costly(100, 1000, 10_000, 500), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithReportInterval(50*time.Millisecond))
		who := []Attribute{tenant("a"), model("small")}
		for range 3 { // a known request is refused as well
			if d := c.Decide(t.Context(), costing(1, []Cost{{"in", 1}}, who)); !d.Allowed {
				t.Fatalf("%+v %s", d, d.Reason)
			}
		}
		res, d := c.ReserveRequest(t.Context(), costing(1, []Cost{{"out", 2}}, who))
		if !d.Allowed {
			t.Fatalf("%+v %s", d, d.Reason)
		}
		var why *NotBookedError
		for name, q := range map[string]Request{
			"an unknown cost":     costing(1, []Cost{{"bytes", 1}}, who),
			"none of an unknown":  costing(1, []Cost{{"bytes", 0}}, who),
			"without a name":      costing(1, []Cost{{"", 1}}, who),
			"requests by name":    costing(1, []Cost{{"requests", 1}}, who),
			"one twice":           costing(1, []Cost{{"in", 1}, {"in", 1}}, who),
			"below 0":             costing(1, []Cost{{"in", -1}}, who),
			"too much":            costing(1, []Cost{{"in", limit.MaxUnits + 1}}, who),
			"2^63 - 1":            costing(1, []Cost{{"in", 1<<63 - 1}}, who),
			"-2^63":               costing(1, []Cost{{"in", -1 << 63}}, who),
			"requests below 0":    costing(-1, []Cost{{"in", 1}}, who),
			"too much of a sum":   costing(1, []Cost{{"out", 900_000_000}}, who),
			"too many costs":      costing(1, make([]Cost, 20), who),
			"a model of no row":   costing(1, nil, []Attribute{tenant("a"), model("huge")}),
			"of no model at all":  costing(1, nil, []Attribute{tenant("a")}),
			"an unknown one only": costing(0, []Cost{{"bytes", 1}}, who),
		} {
			for range 3 {
				if d := c.Decide(t.Context(), q); d.Allowed || d.Reason != ReasonInvalid {
					t.Errorf("%s: %+v %s", name, d, d.Reason)
				}
			}
			if r, d := c.ReserveRequest(t.Context(), q); r != nil || d.Reason != ReasonInvalid {
				t.Errorf("%s reserved: %+v %s", name, d, d.Reason)
			}
			switch name {
			case "too much of a sum", "a model of no row", "of no model at all": // what is over is booked where it can be
			default:
				if err := c.Book(t.Context(), costing(1, nil, who), q); !errors.As(err, &why) || why.Reason != ReasonInvalid || why.Fault == nil {
					t.Errorf("%s booked: %v", name, err)
				}
			}
			ds := c.AllowTogether(t.Context(), []Request{costing(1, []Cost{{"in", 1}}, who), q})
			if !ds[0].Allowed || ds[1].Allowed || ds[1].Reason != ReasonInvalid {
				t.Errorf("%s together: %+v", name, ds)
			}
			if len(q.Attributes) == 2 && q.Attributes[1] == who[1] {
				if err := res.Commit(q.Units, q.Costs...); !errors.Is(err, ErrCost) {
					t.Errorf("%s committed: %v", name, err)
				}
			}
		}
		if err := res.Commit(0, Cost{"out", 10}); err != nil { // no request, and eight more tokens than were reserved
			t.Errorf("Commit: %v", err)
		}
		shut(t, c)
		for meter, want := range map[string]int64{"requests": 3, "out": 10, "sum": 3 + 45, "model": 3 + 6} {
			if got := s.billed(func(r ledger.Row) bool { return r.Meter == meter }); got != want {
				t.Errorf("meter %s has %d units, want %d", meter, got, want)
			}
		}
	})
}

// books is an independent account of costly's limits.
type books struct{ left, spent map[string]int64 }

// units are what each limit makes of a request's costs, by exact fractions.
func (b *books) units(m string, n, in, out int64) map[string]int64 {
	up := func(parts ...int64) int64 {
		sum := new(big.Rat)
		for i := 0; i < len(parts); i += 2 {
			sum.Add(sum, new(big.Rat).Mul(big.NewRat(parts[i], limit.Micro), new(big.Rat).SetInt64(parts[i+1])))
		}
		q, r := new(big.Int).QuoRem(sum.Num(), sum.Denom(), new(big.Int))
		if r.Sign() > 0 {
			q.Add(q, big.NewInt(1))
		}
		return q.Int64()
	}
	all := map[string]int64{"requests": n, "out": out, "sum": up(limit.Micro, in, 4_500_000, out)}
	switch m {
	case "small":
		all["model"] = up(150_000, in, 600_000, out)
	case "large":
		all["model"] = up(3_000_000, in, 15_000_000, out)
	}
	return all
}

func (b *books) fits(units map[string]int64) bool {
	for l, n := range units {
		if n > 0 && n > b.left[l] {
			return false
		}
	}
	return true
}

// take spends units; with less than none it puts them back.
func (b *books) take(units map[string]int64, times int64) {
	for l, n := range units {
		b.left[l] -= times * n
		b.spent[l] += times * n
	}
}

// Whatever is asked, reserved and booked, every limit has exactly what an account of its own says, and so has its meter.
func TestCostsAddUp(t *testing.T) {
	for seed := range uint64(4) {
		bubble(t, costly(300, 20_000, 150_000, 80_000), func(t *testing.T, s *fake) {
			s.leases = memstore.New()
			c := dial(t, s, WithReportInterval(50*time.Millisecond), WithReservationTime(time.Hour))
			r := rand.New(rand.NewPCG(46, seed))
			b := books{map[string]int64{"requests": 300, "out": 20_000, "sum": 150_000, "model": 80_000}, map[string]int64{}}
			allowed, denied := 0, 0
			check := func(what string, d Decision, fits bool) {
				t.Helper()
				if d.Allowed != fits {
					t.Fatalf("seed %d: %s is %+v (%s of %s), and fits: %t; left %v", seed, what, d, d.Reason, d.Limit(), fits, b.left)
				}
				if fits {
					allowed++
				} else {
					denied++
				}
			}
			draw := func() (m string, n, in, out int64, q Request) {
				m, n, in, out = []string{"small", "large", "free"}[r.IntN(3)], r.Int64N(3), r.Int64N(500)*r.Int64N(3), r.Int64N(300)*r.Int64N(3)
				return m, n, in, out, costing(n, []Cost{{"in", in}, {"out", out}}, []Attribute{tenant("a"), model(m)})
			}
			for range 400 {
				m, n, in, out, q := draw()
				if n+in+out == 0 {
					continue
				}
				units := b.units(m, n, in, out)
				switch r.IntN(8) {
				default:
					d := c.Decide(t.Context(), q)
					check("a request", d, b.fits(units))
					if d.Allowed {
						b.take(units, 1)
					}
				case 0: // what it costs turns out to be something else
					res, d := c.ReserveRequest(t.Context(), q)
					check("a reservation", d, b.fits(units))
					if !d.Allowed {
						continue
					}
					if c.Stats().Reservations != 1 {
						t.Errorf("%d reservations", c.Stats().Reservations)
					}
					in, out := r.Int64N(2*in+2), r.Int64N(2*out+2)
					if err := res.Commit(n, Cost{"out", out}, Cost{"in", in}); err != nil {
						t.Fatal(err)
					}
					b.take(b.units(m, n, in, out), 1)
				case 1:
					m2, n2, in2, out2, q2 := draw()
					if n2+in2+out2 == 0 {
						continue
					}
					second := b.units(m2, n2, in2, out2)
					fits := b.fits(units)
					b.take(units, 1)
					both := fits && b.fits(second)
					ds := c.AllowTogether(t.Context(), []Request{q, q2})
					check("two requests", Decision{Allowed: ds[0].Allowed && ds[1].Allowed, Reason: ds[1].Reason}, both)
					if both {
						b.take(second, 1)
					} else {
						b.take(units, -1)
					}
				case 2:
					if r.IntN(8) == 0 {
						if err := c.Book(t.Context(), q); err != nil {
							t.Fatal(err)
						}
						b.take(units, 1)
					}
				}
			}
			if allowed < 50 || denied < 50 {
				t.Errorf("%d allowed and %d denied; the cases are too alike", allowed, denied)
			}
			shut(t, c)
			for meter, want := range b.spent {
				if got := s.billed(func(r ledger.Row) bool { return r.Meter == meter }); got != want {
					t.Errorf("seed %d: meter %s has %d units, want %d", seed, meter, got, want)
				}
			}
		})
	}
}

// A reservation keeps the buckets of limits of which it has nothing, for its commit may spend of them.
func TestReservationsCommitWhatTheyDidNotReserve(t *testing.T) {
	bubble(t, costly(100, 1000, 10_000, 500), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithReportInterval(50*time.Millisecond), WithReservationTime(time.Hour), WithIdle(time.Second))
		res, d := c.ReserveRequest(t.Context(), costing(1, nil, []Attribute{tenant("a"), model("large")}))
		if !d.Allowed {
			t.Fatalf("%+v %s", d, d.Reason)
		}
		time.Sleep(10 * time.Minute) // buckets without use are dropped
		if got := c.Stats().Buckets; got != 4 {
			t.Errorf("%d buckets are left, want 4", got)
		}
		if err := res.Commit(1, Cost{"in", 7}, Cost{"out", 3}); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Minute)
		if got := c.Stats().Buckets; got != 0 {
			t.Errorf("%d buckets are left after the end, want none", got)
		}
		shut(t, c)
		for meter, want := range map[string]int64{"requests": 1, "out": 3, "sum": 21, "model": 66} {
			if got := s.billed(func(r ledger.Row) bool { return r.Meter == meter }); got != want {
				t.Errorf("meter %s has %d units, want %d", meter, got, want)
			}
		}
	})
}

// A reservation of costs is extended, billed what it used when it expires, and committed late, each limit by its weights.
func TestReservationsOfCosts(t *testing.T) {
	bubble(t, costly(100, 1000, 10_000, 500), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithReportInterval(50*time.Millisecond), WithReservationTime(time.Minute))
		billed := func(requests, out, sum, byModel int64) {
			t.Helper()
			time.Sleep(time.Second)
			for meter, want := range map[string]int64{"requests": requests, "out": out, "sum": sum, "model": byModel} {
				if got := s.billed(func(r ledger.Row) bool { return r.Meter == meter }); got != want {
					t.Errorf("meter %s has %d units, want %d", meter, got, want)
				}
			}
		}
		who := []Attribute{tenant("a"), model("small")}
		r, d := c.ReserveRequest(t.Context(), costing(1, []Cost{{"in", 9}, {"out", 600}}, who))
		if !d.Allowed {
			t.Fatalf("%+v %s", d, d.Reason)
		}
		if d := r.Extend(t.Context(), 0, Cost{"out", 401}); d.Allowed || d.Limit() != "out" {
			t.Errorf("extended by 401 of 400: %+v by %s", d, d.Limit())
		}
		if d := r.Extend(t.Context(), 0, Cost{"out", 100}); !d.Allowed {
			t.Errorf("extended: %+v by %s", d, d.Limit())
		}
		if d := r.Extend(t.Context(), 0, Cost{"bytes", 1}); d.Reason != ReasonInvalid {
			t.Errorf("extended by an unknown cost: %+v %s", d, d.Reason)
		}
		if err := r.Use(1, Cost{"in", 9}, Cost{"out", 650}); err != nil {
			t.Error(err)
		}
		if err := r.Use(1, Cost{"bytes", 1}); !errors.Is(err, ErrCost) {
			t.Errorf("an unknown cost: %v", err)
		}
		if err := r.Use(1, Cost{"out", 300_000_000}); !errors.Is(err, ErrCost) {
			t.Errorf("more than a limit's units: %v", err)
		}
		billed(0, 0, 0, 0)
		time.Sleep(time.Minute)
		billed(1, 650, 9+2925, 392) // ⌈0.15 × 9 + 0.6 × 650⌉
		if err := r.Commit(1, Cost{"in", 10}, Cost{"out", 651}); err != nil || !r.Late() {
			t.Errorf("committed late: %v", err)
		}
		billed(1, 651, 10+2930, 393) // ⌈4.5 × 651⌉ and ⌈1.5 + 390.6⌉
		shut(t, c)
		billed(1, 651, 10+2930, 393)
	})
}

// A version on trial that names other costs, in another order, counts those that it names. A shadow limit counts its own.
func TestCostsOnTrial(t *testing.T) {
	p := costly(100, 1000, 10_000, 500)
	aside := hourly("aside", 100)
	aside.Meter, aside.Shadow, aside.Algorithm, aside.EpsilonPPM = "", true, limit.TokenBucket, limit.DefaultEpsilonPPM
	aside.Cost.Weights = []limit.Weight{{Cost: "in", Micros: 2 * limit.Micro}}
	p.Plans[0].Limits = append(p.Plans[0].Limits, aside)
	bubble(t, p, func(t *testing.T, s *fake) {
		tried := plans(7, hourly("requests", 100), hourly("out", 100), hourly("bytes", 100))
		tried.Costs = []string{"out", "bytes"}
		tried.Plans[0].Limits[1].Cost.Weights = []limit.Weight{{Cost: "out", Micros: limit.Micro / 2}}
		tried.Plans[0].Limits[2].Cost.Weights = []limit.Weight{{Cost: "bytes", Micros: limit.Micro}}
		c := dial(t, s)
		s.try(tried)
		time.Sleep(time.Second)
		for range 3 {
			if d := c.Decide(t.Context(), costing(1, []Cost{{"in", 7}, {"out", 9}}, []Attribute{tenant("a"), model("small")})); !d.Allowed {
				t.Errorf("%+v by %s", d, d.Limit())
			}
			time.Sleep(time.Second)
		}
		got := make(map[string]int64)
		for _, tr := range c.Counters().Trials {
			got[tr.Limit] += tr.Admitted
		}
		if want := (map[string]int64{"aside": 42, "requests": 3, "out": 15}); !maps.Equal(got, want) {
			t.Errorf("tried units are %v, want %v", got, want)
		}
		shut(t, c)
	})
}

// tokens is a policy of requests, and of one cost of that name, each unit of which is so much in micros.
func tokens(version int64, cost string, micros int64) *limit.Policy {
	of := hourly("tokens", limit.MaxUnits)
	of.Cost.Weights = []limit.Weight{{Cost: cost, Micros: micros}}
	p := plans(version, hourly("requests", 100), of)
	p.Costs = []string{cost}
	return p
}

// byModel adds a limit of tok to a policy, for requests of one model.
func byModel(p *limit.Policy, name string, micros int64) *limit.Policy {
	of := hourly("model", limit.MaxUnits)
	of.Algorithm, of.EpsilonPPM = limit.TokenBucket, limit.DefaultEpsilonPPM
	of.Cost = limit.Weighing{By: "model", Rows: []limit.WeighingRow{{Value: name, Weights: []limit.Weight{{Cost: "tok", Micros: micros}}}}}
	p.Plans[0].Limits = append(p.Plans[0].Limits, of)
	return p
}

// wantMeters checks what the ledger has of meters.
func wantMeters(t *testing.T, s *fake, meters map[string]int64) {
	t.Helper()
	for meter, want := range meters {
		if got := s.billed(func(r ledger.Row) bool { return r.Meter == meter }); got != want {
			t.Errorf("meter %s has %d units, want %d", meter, got, want)
		}
	}
}

// A limit that cannot weigh a late commit, by the policy of now, loses nothing of it at the others. One that would count
// too much counts as much as it can.
func TestALateCommitBooksWhatItCan(t *testing.T) {
	for what, c := range map[string]struct {
		first, then *limit.Policy
		tok         int64
		meters      map[string]int64
	}{
		"a cost has another name": {tokens(1, "tok", limit.Micro), tokens(2, "tokens", limit.Micro), 12, map[string]int64{"requests": 1, "tokens": 0}},
		"a model has no weights any more": {
			byModel(tokens(1, "tok", limit.Micro), "old", limit.Micro), byModel(tokens(2, "tok", limit.Micro), "new", limit.Micro), 12,
			map[string]int64{"requests": 1, "tokens": 12, "model": 0},
		},
		"too much of a limit": {
			byModel(tokens(1, "tok", limit.Micro), "old", limit.Micro), byModel(tokens(2, "tok", limit.Micro), "old", 15*limit.Micro), 900_000_000,
			map[string]int64{"requests": 1, "tokens": 900_000_000, "model": limit.MaxUnits},
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, c.first, func(t *testing.T, s *fake) {
				s.leases = memstore.New()
				q := dial(t, s, WithReportInterval(50*time.Millisecond))
				r, d := q.ReserveRequest(t.Context(), Request{
					Units: 1, Costs: []Cost{{"tok", 10}}, Attributes: []Attribute{tenant("a"), model("old")}, Expires: 2 * time.Second,
				})
				if r == nil {
					t.Fatalf("%+v %s", d, d.Reason)
				}
				s.apply(c.then)
				time.Sleep(4 * time.Second)
				if err := r.Commit(1, Cost{"tok", limit.MaxUnits + 1}); !errors.Is(err, ErrCost) {
					t.Errorf("more than any cost may be: %v, want ErrCost", err)
				}
				if err := r.Commit(1, Cost{"tok", c.tok}); err != nil || !r.Late() {
					t.Errorf("committed late: %v, late %v", err, r.Late())
				}
				shut(t, q)
				wantMeters(t, s, c.meters)
			})
		})
	}
}

// A limit that a later policy adds, and that what was used is too much for, refuses the extension. The reservation
// still ends.
func TestWhatWasUsedCanBeBilledAfterAnExtension(t *testing.T) {
	bubble(t, tokens(1, "tok", limit.Micro), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithReportInterval(50*time.Millisecond))
		r, d := c.ReserveRequest(t.Context(), Request{
			Units: 1, Costs: []Cost{{"tok", 10}}, Attributes: []Attribute{tenant("a"), model("old")}, Expires: 20 * time.Second,
		})
		if r == nil {
			t.Fatalf("%+v %s", d, d.Reason)
		}
		if err := r.Use(1, Cost{"tok", 200_000_000}); err != nil {
			t.Fatal(err)
		}
		s.apply(byModel(tokens(2, "tok", limit.Micro), "old", 15*limit.Micro))
		time.Sleep(4 * time.Second)
		if d := r.Extend(t.Context(), 0, Cost{"tok", 5}); d.Reason != ReasonInvalid {
			t.Errorf("extended: %+v %s, want invalid", d, d.Reason)
		}
		time.Sleep(30 * time.Second)
		if st := c.Stats(); st.Reservations != 0 {
			t.Errorf("%d reservations live after the expiry, want none", st.Reservations)
		}
		if err := r.Commit(1, Cost{"tok", 200_000_000}); err != nil {
			t.Errorf("committed late: %v", err)
		}
		shut(t, c)
		wantMeters(t, s, map[string]int64{"requests": 1, "tokens": 200_000_000, "model": 0})
	})
}

// An expiry counts no more of a limit than that can have, and ends the reservation in any case.
func TestAnExpiryCountsNoMoreThanALimitCan(t *testing.T) {
	bubble(t, tokens(1, "tok", 15*limit.Micro), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithReportInterval(50*time.Millisecond))
		r, d := c.ReserveRequest(t.Context(), Request{Units: 1, Costs: []Cost{{"tok", 10}}, Attributes: []Attribute{tenant("a")}, Expires: 2 * time.Second})
		if r == nil {
			t.Fatalf("%+v %s", d, d.Reason)
		}
		r.mu.Lock()
		r.totals = []int64{1, 900_000_000} // Use would refuse it
		r.mu.Unlock()
		time.Sleep(4 * time.Second)
		if st := c.Stats(); st.Reservations != 0 {
			t.Errorf("%d reservations live after the expiry, want none", st.Reservations)
		}
		shut(t, c)
		wantMeters(t, s, map[string]int64{"requests": 1, "tokens": limit.MaxUnits})
	})
}

// What no policy can name is refused while none is known, too: it could not be committed.
func TestCostsAreReadBeforeAPolicyIsKnown(t *testing.T) {
	bubble(t, tokens(1, "tok", limit.Micro), func(t *testing.T, s *fake) {
		s.stop()
		c := dial(t, s, WithFailureMode(FailOpen))
		for what, costs := range map[string][]Cost{"one twice": {{"tok", 10}, {"tok", 11}}, "requests by name": {{"requests", 4}}} {
			q := Request{Units: 1, Costs: costs, Attributes: []Attribute{tenant("a")}}
			if d := c.Decide(t.Context(), q); d.Allowed || d.Reason != ReasonInvalid {
				t.Errorf("%s: %+v %s, want invalid", what, d, d.Reason)
			}
			if r, d := c.ReserveRequest(t.Context(), q); r != nil || d.Reason != ReasonInvalid {
				t.Errorf("%s reserved: %+v %s, want invalid", what, d, d.Reason)
			}
		}
		r, d := c.ReserveRequest(t.Context(), Request{Units: 1, Costs: []Cost{{"tok", 10}}, Attributes: []Attribute{tenant("a")}})
		if r == nil {
			t.Errorf("%+v %s, want allowed", d, d.Reason)
		}
		_ = r.Cancel()
		shut(t, c)
	})
}

// A request of several costs waits its turn until each limit has what it makes of them, and a look at one takes nothing.
func TestWaitAndPeekByCosts(t *testing.T) {
	p := costly(100, 1000, 10_000, 500)
	for i := range p.Plans[0].Limits {
		l := &p.Plans[0].Limits[i]
		l.Rate.Per, l.Rate.Calendar = time.Second, 0
		l.Rate.Units = 50
	}
	bubble(t, p, func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		of := func(out int64) Request {
			return costing(1, []Cost{{"out", out}}, []Attribute{tenant("a"), model("free")})
		}
		if d := c.WaitRequest(t.Context(), of(900)); !d.Allowed {
			t.Fatalf("900 of 1000: %+v", d)
		}
		for range 3 {
			if d := c.PeekRequest(t.Context(), of(1001)); d.Reason != ReasonTooLarge || d.Limit() != "out" {
				t.Errorf("a look at 1001 of 1000: %+v by %s", d, d.Limit())
			}
			if d := c.PeekRequest(t.Context(), of(90)); !d.Allowed {
				t.Errorf("a look at 90 of 100: %+v by %s", d, d.Limit())
			}
		}
		began := time.Now()
		if d := c.WaitRequest(t.Context(), of(150)); !d.Allowed || time.Since(began) < 900*time.Millisecond || time.Since(began) > 3*time.Second {
			t.Errorf("150 of 100, and 50 a second: %+v after %s", d, time.Since(began))
		}
		if d := c.WaitRequest(t.Context(), of(1001)); d.Reason != ReasonTooLarge {
			t.Errorf("1001 of 1000: %+v", d)
		}
		if d := c.WaitRequest(t.Context(), costing(1, []Cost{{"bytes", 1}}, of(1).Attributes)); d.Reason != ReasonInvalid {
			t.Errorf("an unknown cost: %+v", d)
		}
		shut(t, c)
	})
}

// What is left is told for each cost, and of a sum under its limit's name; of a denial by what denied.
func TestByUnit(t *testing.T) {
	bubble(t, costly(100, 1000, 10_000, 500), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		decide := func(out int64) Decision {
			return c.Decide(t.Context(), costing(1, []Cost{{"out", out}}, []Attribute{tenant("a"), model("small")}))
		}
		for i := range int64(4) { // known from the third on
			d := decide(10)
			got := make(map[string]int64)
			for unit, told := range d.ByUnit() {
				got[unit] = told.Remaining
			}
			want := map[string]int64{"requests": 99 - i, "out": 1000 - 10*(i+1), "sum": 10_000 - 45*(i+1), "model": 500 - 6*(i+1)}
			if !d.Allowed || !maps.Equal(got, want) {
				t.Errorf("request %d: %v, want %v", i, got, want)
			}
		}
		d := decide(990)
		if got := d.ByUnit(); d.Allowed || len(got) != 1 || got[d.Limit()].Limit != d.Limit() {
			t.Errorf("denied by %s: %v", d.Limit(), got)
		}
		if got := (Decision{Allowed: true}).ByUnit(); len(got) != 0 {
			t.Errorf("of no limit: %v", got)
		}
		told := Decided(true, ReasonLimit, 0, Details{Limit: "l", Cost: "out", Remaining: 7})
		if got := told.ByUnit(); len(got) != 1 || got["out"].Remaining != 7 {
			t.Errorf("decided elsewhere: %v", got)
		}
		shut(t, c)
	})
}

// A limit of slots has no units to tell of, and hides none of another's. A limit that weighs is told of under its own
// name, but not in the place of a cost.
func TestByUnitOfSlotsAndNamesakes(t *testing.T) {
	sum := func(name string) limit.Limit {
		l := hourly(name, 10)
		l.Cost.Weights = []limit.Weight{{Cost: "out", Micros: 2 * limit.Micro}}
		return l
	}
	out := hourly("of-out", 1000)
	out.Cost.Weights = []limit.Weight{{Cost: "out", Micros: limit.Micro}}
	requests := hourly("per-hour", 500)
	slow := limit.Limit{Name: "slow", Algorithm: limit.Concurrency, Slots: 3}
	for name, c := range map[string]struct {
		limits []limit.Limit
		want   map[string]string
	}{
		"slots":                     {[]limit.Limit{requests, slow}, map[string]string{"requests": "per-hour"}},
		"slots alone":               {[]limit.Limit{slow}, map[string]string{}},
		"a sum":                     {[]limit.Limit{requests, sum("money")}, map[string]string{"requests": "per-hour", "money": "money"}},
		"a sum called requests":     {[]limit.Limit{requests, sum("requests")}, map[string]string{"requests": "per-hour"}},
		"a sum called as a cost":    {[]limit.Limit{out, requests, sum("out")}, map[string]string{"out": "of-out", "requests": "per-hour"}},
		"of which no limit is":      {[]limit.Limit{requests, sum("in")}, map[string]string{"requests": "per-hour"}},
		"one limit, called as that": {[]limit.Limit{sum("requests")}, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := plans(1, c.limits...)
			p.Costs = []string{"in", "out"}
			bubble(t, p, func(t *testing.T, s *fake) {
				s.leases = memstore.New()
				q := dial(t, s)
				for i := range 4 { // known from the third on
					d := q.Decide(t.Context(), costing(1, []Cost{{"out", 1}}, []Attribute{tenant("a")}))
					got := make(map[string]string)
					for unit, told := range d.ByUnit() {
						got[unit] = told.Limit
					}
					if !d.Allowed || !maps.Equal(got, c.want) {
						t.Errorf("request %d: %+v, %v, want %v", i, d, got, c.want)
					}
					d.Done()
				}
				shut(t, q)
			})
		})
	}
}

// What is over is booked, and given back, at the limits that can weigh it. That one cannot is logged once for each
// policy.
func TestBookBesideALimitWithoutWeights(t *testing.T) {
	policy := func(version int64) *limit.Policy {
		return byModel(tokens(version, "tok", limit.Micro), "old", limit.Micro)
	}
	bubble(t, policy(1), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		var logged bytes.Buffer
		c := dial(t, s, WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
		of := func(m string, tok int64) Request {
			return costing(1, []Cost{{"tok", tok}}, []Attribute{tenant("a"), model(m)})
		}
		book := func(want int, requests ...Request) {
			t.Helper()
			if err := c.Book(t.Context(), requests...); err != nil {
				t.Error(err)
			}
			if n := strings.Count(logged.String(), `limit model has no weights for a request whose model is \"new`); n != want {
				t.Errorf("logged %d times, want %d: %s", n, want, &logged)
			}
		}
		if d := c.Decide(t.Context(), of("old", 1)); !d.Allowed { // the leases that give back
			t.Fatalf("%+v", d)
		}
		book(1, of("old", 5), of("new", 7))
		book(1, of("newer", 100))
		if whole, err := c.Refund(t.Context(), of("newer", 40)); whole || err != nil {
			t.Errorf("Refund: %t, %v, want some of it", whole, err)
		}
		if err := c.Book(t.Context(), of("old", 1), of("old", limit.MaxUnits+1)); err == nil {
			t.Error("more than may be is booked")
		}
		s.apply(policy(2))
		time.Sleep(time.Second)
		book(2, of("new", 1))
		shut(t, c)
		wantMeters(t, s, map[string]int64{"requests": 1 + 2 + 1 - 1 + 1, "tokens": 1 + 5 + 7 + 100 - 40 + 1, "model": 1 + 5})
	})
}
