package leasetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Changes plays honest holders of a limit that changes its algorithm again and again, at one capacity. In all
// they may admit that capacity, what a rate brings meanwhile, and as much again for each window that begins.
// What old leases still trickle after a change is charged late, and allowed besides. What is in flight is
// within the slots at every instant.
func Changes(t *testing.T, seeds int, open func(t *testing.T) lease.Store) {
	t.Helper()
	changes := 0
	for seed := range uint64(seeds) {
		broken, n := change(open(t), seed)
		if broken != "" {
			t.Errorf("seed %d: %s", seed, broken)
		}
		changes += n
	}
	if changes < seeds {
		t.Errorf("got %d changes with %d seeds, want more", changes, seeds)
	}
}

func change(s lease.Store, seed uint64) (broken string, changes int) {
	w := &world{s: s, rng: rand.New(rand.NewPCG(seed, 13)), now: start + 1 + int64(seed%977)*1_234}
	pick := func(v ...int64) int64 { return v[w.rng.IntN(len(v))] }
	units := pick(20, 200, 1000)
	w.period = pick(20_000_000, 60_000_000, 60_000_000)
	begun := w.now
	become := func() {
		algorithm := limit.Algorithm(1 + w.rng.IntN(6))
		if w.rng.IntN(3) == 0 {
			algorithm = limit.Concurrency
		}
		w.spec = lease.Spec{Algorithm: algorithm, Units: units, Period: w.period}
		switch algorithm {
		case limit.TokenBucket, limit.LeakyBucket:
			w.spec.Burst = units
		case limit.FixedWindow, limit.SlidingWindow:
			in(&w.spec, w.period, w.now)
		}
	}
	become()
	for i := range 1 + w.rng.IntN(6) {
		w.holders = append(w.holders, &honest{name: fmt.Sprint("agent-", i)})
	}
	var admitted, late int64
	for range 1000 {
		w.now += 1 + w.rng.Int64N(100_000)
		if w.rng.IntN(25) == 0 {
			for _, h := range w.holders {
				w.refill(h)
			}
			slots := w.spec.Algorithm == limit.Concurrency
			become()
			changes++
			for _, h := range w.holders {
				if slots && w.spec.Algorithm != limit.Concurrency {
					// Agents know that slots are not units to spend. Requests in flight end before their
					// lease's slot of the ring is over.
					h.tokens, h.inUse = 0, nil
				}
				if w.spec.Algorithm == limit.Concurrency {
					h.grant.Trickle = 0 // as agents do
				}
				if h.grant.Trickle > 0 { // what it may bring until the lease ends
					late += h.grant.Trickle*max(h.expires-w.now, 0)/1e12 + 1
				}
			}
		}
		for _, h := range w.holders {
			if w.rng.IntN(3) > 0 {
				continue
			}
			before, slots := w.total, w.spec.Algorithm == limit.Concurrency
			w.use(h, w.rng.Int64N(units/5+2))
			for i, end := range h.inUse {
				h.inUse[i] = min(end, w.now+300_000)
			}
			if !slots {
				admitted += w.total - before
			}
		}
		elapsed, turns := w.now-begun, w.now/w.period-begun/w.period
		if most := units*(1+turns) + units*elapsed/w.period + 1 + late; admitted > most {
			return fmt.Sprintf("%d admitted in %d ms, %d windows and %d changes, the most is %d", admitted, elapsed/1000, 1+turns, changes, most), changes
		}
		if w.spec.Algorithm == limit.Concurrency {
			if broken := w.bound(); broken != "" {
				return fmt.Sprintf("%s after %d changes", broken, changes), changes
			}
		}
	}
	return "", changes
}
