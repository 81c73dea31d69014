package leasetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// History is a random sequence of renewals of a few holders of one bucket, made
// up as it goes from the answers so far.
type History struct {
	SamePlan bool // the limit never changes

	rng     *rand.Rand
	spec    lease.Spec
	period  int64
	now     int64
	holders []holder
}

type holder struct {
	name                   string
	number, began          int64
	admitted, denied, told int64
	grant                  lease.Grant
	last                   lease.Renewal
	live                   bool
	at                     int64 // when it was last answered
}

// NewHistory returns the history of seed.
func NewHistory(seed uint64) *History {
	h := &History{rng: rand.New(rand.NewPCG(seed, 7)), now: start + int64(seed%1000)*777}
	pick := func(v ...int64) int64 { return v[h.rng.IntN(len(v))] }
	switch seed % 8 {
	case 2, 5:
		h.period = pick(1_000_000, 10_000_000, 60_000_000)
		h.spec = Window(pick(1, 5, 100, 10_000, 1_000_000_000), h.period, h.now)
		h.spec.Ledgered = seed%8 == 5
	case 3:
		h.period = pick(10_000, 1_000_000, 2_000_000, 10_000_000, 60_000_000)
		h.spec = Sliding(pick(1, 5, 100, 10_000, 1_000_000_000), h.period, h.now)
	case 4:
		h.spec = Log(pick(1, 5, 100, limit.MaxLog), pick(1_000, 1_000_000, 10_000_000, 60_000_000))
	case 6:
		h.spec = Slots(pick(1, 5, 100, 10_000))
	default:
		h.spec = Bucket(pick(1, 5, 100, 10_000, 5_000_000, 1_000_000_000), pick(0, 1, 10, 1000, 20_000, 1_000_000_000))
		h.spec.Period = pick(1_000_000, 1_000_000, 60_000_000, 3_600_000_000, 366*86_400_000_000)
		h.spec.EpsilonPPM = pick(0, 10_000, 50_000, 1_000_000)
		if seed%8 == 7 {
			h.spec.Algorithm = limit.LeakyBucket
		}
	}
	if seed/8%2 == 1 { // options
		h.spec.Borrow = pick(0, 0, 1, 10, 1000)
		h.spec.Lockout = pick(0, 0, 0, 100_000, 10_000_000)
		h.spec.Hold = pick(0, 0, 5_000_000, 60_000_000, 900_000_000)
		h.spec.Prorate = h.rng.IntN(2) == 0
	}
	for i := range 1 + h.rng.IntN(int(pick(6, 6, 40))) {
		h.holders = append(h.holders, holder{name: fmt.Sprint("agent-", i)})
	}
	return h
}

// Next returns the next renewal; Answered tells the history its answer.
func (h *History) Next() (lease.Renewal, func(lease.Answer)) {
	rng := h.rng
	switch rng.IntN(20) {
	case 0:
		h.now += rng.Int64N(30_000_000)
	case 1:
		h.now -= rng.Int64N(2_000_000)
	case 2:
		if rng.IntN(4) == 0 {
			h.now += rng.Int64N(1_200_000_000) - 600_000_000
		}
	default:
		h.now += rng.Int64N(200_000)
	}
	if !h.SamePlan && rng.IntN(60) == 0 {
		most := int64(limit.MaxUnits) // another plan
		if h.spec.Algorithm == limit.SlidingWindowLog {
			most = limit.MaxLog
		}
		h.spec.Units = min(max(h.spec.Units*(1+rng.Int64N(8))/4, 1), most)
		h.spec.Burst = min(h.spec.Burst*(1+rng.Int64N(8))/4, limit.MaxUnits)
		if rng.IntN(8) == 0 {
			h.another()
		}
	}
	if h.period > 0 && rng.IntN(3) > 0 {
		in(&h.spec, h.period, h.now)
	}
	p := &h.holders[rng.IntN(len(h.holders))]
	if p.last.Number > 0 && rng.IntN(10) == 0 {
		r := p.last // repeated, or late
		r.Now = h.now
		if rng.IntN(3) == 0 && r.Number > r.Began {
			r.Number--
		}
		return r, func(lease.Answer) {}
	}
	if p.began == 0 || rng.IntN(50) == 0 {
		p.began = p.number + 1
		p.admitted, p.denied, p.told = 0, 0, 0
	}
	p.number += 1 + rng.Int64N(2)
	spent := rng.Int64N(p.grant.Tokens + 2)
	if rng.IntN(10) == 0 {
		spent += rng.Int64N(1000) // overspent, as in an outage
	}
	p.admitted += spent
	if rng.IntN(2) == 0 {
		p.denied += rng.Int64N(500)
		if rng.IntN(30) == 0 {
			p.denied += rng.Int64N(limit.MaxUnits) // one request, far too large
		}
	}
	r := lease.Renewal{
		Key: "bucket", Spec: h.spec, Holder: p.name, Now: h.now, Number: p.number, Began: p.began,
		Admitted: p.admitted, Denied: p.denied, Told: p.told, Held: rng.Int64N(max(p.grant.Tokens-spent, 0) + 1),
		Window: p.grant.ValidFrom, Generation: p.grant.Generation, Final: rng.IntN(12) == 0,
	}
	if h.period > 0 && rng.IntN(6) == 0 {
		r.Window = h.spec.WindowStart // it went on with its share
	}
	if rng.IntN(3) == 0 {
		r.Waiting = rng.Int64N(20)
		if rng.IntN(20) == 0 {
			r.Waiting = rng.Int64N(limit.MaxUnits + 1)
		}
		if r.Waiting > 0 && rng.IntN(2) == 0 {
			r.Largest = 1 + rng.Int64N(r.Waiting)
			if rng.IntN(2) == 0 {
				r.Waiting -= r.Waiting % r.Largest
			}
		}
	}
	h.remember(&r)
	if rng.IntN(4) == 0 {
		r.Reserved = rng.Int64N(r.Waiting + 1)
	}
	r.Alone = rng.IntN(8) == 0
	if rng.IntN(4) == 0 {
		r.Strain = rng.Int64N(lease.MaxStrain + 1)
	}
	if h.spec.Algorithm == limit.Concurrency {
		r.InUse = min(rng.Int64N(p.grant.Tokens+2), limit.MaxUnits)
	}
	if h.period > 0 && p.grant.Next > 0 && h.now >= p.grant.ValidUntil && rng.IntN(2) == 0 {
		r.Window, r.Held = p.grant.ValidUntil, rng.Int64N(p.grant.Next+1) // it went over to the next window
	}
	if p.live {
		r.Trickle, r.ExpiresIn = p.grant.Trickle, rng.Int64N(p.grant.TTL+1)
	} else if !h.SamePlan && rng.IntN(40) == 0 {
		r.Trickle, r.ExpiresIn = rng.Int64N(1_000_000_000), 1+rng.Int64N(lease.LongTerm) // the store forgot it, it seems
	}
	if rng.IntN(3) > 0 && p.at > 0 {
		r.Elapsed = max(h.now-p.at+rng.Int64N(200_000)-100_000, 0) // what its own clock says
		if rng.IntN(10) == 0 {
			r.Elapsed = rng.Int64N(2_000_000)
		}
	}
	if rng.IntN(3) == 0 {
		r.Void, r.VoidAgo = 1+rng.Int64N(max(p.grant.Tokens, 1)), 1+rng.Int64N(2_000_000)
		if rng.IntN(10) == 0 {
			r.Void = 1 + rng.Int64N(limit.MaxUnits)
		}
	}
	p.last = r
	return r, func(a lease.Answer) {
		if a.Err == nil {
			p.grant, p.told, p.live, p.at = a.Grant, r.Admitted, !r.Final, r.Now
		}
	}
}

// remember says how far back the store remembers, and what the ledger says.
func (h *History) remember(r *lease.Renewal) {
	rng := h.rng
	if rng.IntN(8) == 0 {
		r.Memory = lease.Memory{Since: max(h.now-rng.Int64N(20_000_000), 1), Lost: rng.IntN(2) == 0}
	}
	if !h.spec.Ledgered || rng.IntN(3) > 0 {
		return
	}
	r.Figure = lease.Figure{Window: h.spec.WindowStart, Used: rng.Int64N(2 * h.spec.Units), Whole: rng.IntN(4) > 0}
	if rng.IntN(4) > 0 {
		r.Figure.Through = h.now - rng.Int64N(20_000_000) + 16_000_000
	}
	r.Figure.Age, r.Figure.Unbroken = rng.Int64N(10_000_000), rng.Int64N(60_000_000)
}

// another makes it another algorithm of the same units.
func (h *History) another() {
	h.spec.Algorithm = limit.Algorithm(1 + h.rng.IntN(6))
	h.spec.Period = max(h.spec.Period, 1_000_000)
	h.spec.Burst = h.spec.Units
	h.period = 0
	h.spec.Ledgered = h.spec.Ledgered && h.spec.Windowed()
	switch h.spec.Algorithm {
	case limit.FixedWindow, limit.SlidingWindow:
		h.period = min(h.spec.Period, 60_000_000)
		in(&h.spec, h.period, h.now)
	case limit.SlidingWindowLog:
		h.spec.Units = min(h.spec.Units, limit.MaxLog)
	}
}

func same(a, b error) bool {
	for _, err := range []error{lease.ErrStale, lease.ErrUnsure, lease.ErrInvalid} {
		if errors.Is(a, err) != errors.Is(b, err) {
			return false
		}
	}
	return (a == nil) == (b == nil)
}

// Differential runs the same random histories through two stores, each new and
// empty, and demands equal answers to every step.
func Differential(t *testing.T, seeds, steps int, open func(t *testing.T) (want, got lease.Store)) {
	t.Helper()
	for seed := range uint64(seeds) {
		a, b := open(t)
		h := NewHistory(seed)
		for i := range steps {
			r, answered := h.Next()
			want := a.Renew(context.Background(), []lease.Renewal{r})[0]
			got := b.Renew(context.Background(), []lease.Renewal{r})[0]
			if want.Grant != got.Grant || !same(want.Err, got.Err) {
				t.Fatalf("seed %d, step %d: %+v\n got %+v %v\nwant %+v %v", seed, i, r, got.Grant, got.Err, want.Grant, want.Err)
			}
			answered(want)
		}
	}
}
