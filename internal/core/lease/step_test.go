package lease_test

import (
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// invariant returns what is broken of the invariants that the bound rests on, or "".
func invariant(s *lease.State, spec *lease.Spec) string {
	rate, burst := spec.Flow()
	slack := int64(0)
	if rate > 0 {
		slack = int64(float64(rate+burst) * float64(spec.EpsilonPPM) / 2 / limit.Micro)
	}
	if spec.Sliding() {
		rate = int64(float64(s.Before) * 1e6 / float64(s.WindowEnd-s.Window))
	}
	var ring, held lease.Sums
	for _, slot := range s.Ring {
		ring = plus(ring, slot.Sums)
	}
	for _, rec := range s.Holders {
		if rec.FallbackSlot()*lease.SlotLen > s.Last {
			held.Fallback += rec.Lease.Fallback
		}
		if rec.Slot*lease.SlotLen > s.Last {
			lent := rec.Lease
			lent.Fallback = 0
			if spec.Windowed() && rec.Window != s.Window {
				lent.Stock = rec.Lease.Next
			}
			held = plus(held, lent)
		}
	}
	switch {
	case s.Out != ring:
		return fmt.Sprintf("out is %+v, the ring sums to %+v", s.Out, ring)
	case s.Out != held:
		return fmt.Sprintf("out is %+v, live records sum to %+v", s.Out, held)
	case s.Level < -burst-spec.Borrow*limit.Micro && spec.Algorithm != limit.Concurrency:
		return fmt.Sprintf("level is %d, the lowest is %d", s.Level, -burst)
	}
	switch spec.Algorithm {
	case limit.Concurrency:
		if s.Level+s.Out.Stock+s.Withheld > burst {
			return fmt.Sprintf("%d are free, %d with holders and %d withheld of %d slots", s.Level, s.Out.Stock, s.Withheld, burst)
		}
		return ""
	case limit.SlidingWindowLog:
		units := int64(0)
		for i, e := range s.Log {
			units += e.Units
			if e.Units < 1 || e.At > s.Last+lease.FirstTerm || e.At+spec.Period <= s.Last || i > 0 && e.At <= s.Log[i-1].At {
				return fmt.Sprintf("entry %d at %d is %+v, after %+v", i, s.Last, e, s.Log[:i])
			}
		}
		if s.Level+units*limit.Micro != burst {
			return fmt.Sprintf("level is %d with %d units in the log of %d", s.Level, units, burst)
		}
		return ""
	case limit.SlidingWindow:
		switch {
		case s.Before < 0 || s.Left < 0 || s.Left > s.Before:
			return fmt.Sprintf("%d of %d count of the window before", s.Left, s.Before)
		case s.Level+s.Left > burst:
			return fmt.Sprintf("level is %d and %d count of the window before: more than %d", s.Level, s.Left, burst)
		}
		return ""
	}
	pile := s.Out.Pile
	switch out := max(s.Level, 0) + s.Out.Stock + pile; {
	case s.Out.Trickle > rate:
		return fmt.Sprintf("trickles sum to %d, the rate is %d", s.Out.Trickle, rate)
	case s.Out.Fallback > rate:
		return fmt.Sprintf("fallbacks sum to %d, the rate is %d", s.Out.Fallback, rate)
	case out > burst+slack:
		return fmt.Sprintf("level and what is out are %d, burst and slack %d", out, burst+slack)
	case float64(s.Level+s.Out.Stock+pile)+float64(s.Out.Trickle)*float64(s.Last-s.Since)/1e6 > float64(burst+slack)*(1+1e-12)+float64(s.Out.Trickle)/1e6+1:
		return fmt.Sprintf("with unused trickle since %d us, %d and more exceed burst and slack, %d", s.Last-s.Since, out, burst+slack)
	}
	return ""
}

func plus(a, b lease.Sums) lease.Sums {
	return lease.Sums{Stock: a.Stock + b.Stock, Pile: a.Pile + b.Pile, Trickle: a.Trickle + b.Trickle, Demand: a.Demand + b.Demand, Next: a.Next + b.Next,
		Fallback: a.Fallback + b.Fallback}
}

// The invariant of docs/error-bound.md holds after every step of random
// histories: agents that overspend, repeat, lie about what they hold, and clocks
// that leap.
func TestInvariant(t *testing.T) {
	for seed := range uint64(600) {
		h := leasetest.NewHistory(seed)
		h.SamePlan = true // a lowered rate is held to once the leases of the old one end
		var s lease.State
		for i := range 300 {
			r, answered := h.Next()
			g, err := s.Renew(r.Now, &r)
			answered(lease.Answer{Grant: g, Err: err})
			if broken := invariant(&s, &r.Spec); broken != "" {
				t.Fatalf("seed %d, step %d: %s\nafter %+v\nwhich got %+v", seed, i, broken, r, g)
			}
		}
	}
}

// The check of the invariant can fail: a step that forgets a live lease breaks it.
func TestInvariantControl(t *testing.T) {
	var s lease.State
	spec := leasetest.Bucket(1000, 2000)
	for n := range int64(20) {
		r := lease.Renewal{Key: "b", Spec: spec, Holder: fmt.Sprint("agent-", n), Now: 1_760_000_000_000_000 + n, Number: 1, Began: 1, Waiting: 500}
		if _, err := s.Renew(r.Now, &r); err != nil {
			t.Fatal(err)
		}
		s.Out = lease.Sums{} // the guard is gone
		if invariant(&s, &spec) != "" {
			return
		}
	}
	t.Error("the invariant held although the sums were dropped after every step")
}

// Servers learn of a change one after the other, or it is taken back. So a bucket changes its algorithm to and
// fro while earlier leases live. These are piles until their slots are over, and renewing them takes nothing
// out of the sums.
func TestAnAlgorithmThatChangesToAndFro(t *testing.T) {
	const start = 1_760_000_000_000_000
	specs := map[string]lease.Spec{
		"bucket": leasetest.Bucket(1000, 1000), "window": leasetest.Window(1000, 60_000_000, start), "sliding": leasetest.Sliding(1000, 60_000_000, start),
		"log": leasetest.Log(1000, 60_000_000), "slots": leasetest.Slots(1000),
	}
	for own, spec := range specs {
		for other, meanwhile := range specs {
			var s lease.State
			now := int64(start)
			renew := func(spec lease.Spec, holder string, number int64) {
				t.Helper()
				now += 20_000
				r := lease.Renewal{Key: "b", Spec: spec, Holder: holder, Number: number, Began: 1, Waiting: 20, Largest: 1, Reserved: 20}
				if _, err := s.Renew(now, &r); err != nil {
					t.Fatal(err)
				}
			}
			renew(spec, "a", 1)
			renew(spec, "a", 2)
			renew(spec, "b", 1)
			renew(meanwhile, "c", 1)
			for number := int64(2); number <= 4; number++ {
				for _, holder := range []string{"a", "b", "c"} {
					renew(spec, holder, number+1)
				}
				bare := s // less the piles of before, which no record has
				bare.Out, bare.Ring = lease.Sums{}, nil
				for _, slot := range s.Ring {
					if slot.Pile = 0; slot.Sums == (lease.Sums{}) {
						continue
					}
					bare.Ring = append(bare.Ring, slot)
					bare.Out = plus(bare.Out, slot.Sums)
				}
				for _, rec := range s.Holders {
					if rec.Algorithm != s.Algorithm || rec.Start <= s.Changed {
						continue
					}
					bare.Ring.Add(rec.Slot, lease.Sums{Pile: rec.Lease.Pile})
					bare.Out.Pile += rec.Lease.Pile
				}
				broken := invariant(&bare, &spec)
				if held := s.Holders["a"].Lease.Stock + s.Holders["b"].Lease.Stock + s.Holders["c"].Lease.Stock; own == "slots" && s.Out.Stock >= held {
					broken = "" // what is out of before may be slots in use, until its leases end
				}
				if broken != "" {
					t.Errorf("a %s that was a %s for a moment, renewed %d times: %s", own, other, number-1, broken)
				}
			}
		}
	}
}

// What is out when a bucket becomes slots is free again when the last lease of before ends: nothing else brings it back.
func TestWhatWasOutOfABucketBecomesSlots(t *testing.T) {
	var s lease.State
	now := int64(1_760_000_000_000_000)
	r := lease.Renewal{Key: "b", Spec: leasetest.Bucket(1000, 1000), Holder: "a", Number: 1, Began: 1, Waiting: 1, Largest: 1}
	for range 500 {
		if _, err := s.Renew(now, &r); err != nil {
			t.Fatal(err)
		}
		now, r.Number, r.Spec, r.Held = now+200_000, r.Number+1, leasetest.Slots(1000), 0
		if free := s.Level + s.Out.Stock; free > 1000*limit.Micro {
			t.Fatalf("%d are free or out of 1000", free/limit.Micro)
		}
	}
	if s.Level+s.Out.Stock != 1000*limit.Micro {
		t.Errorf("after a hundred seconds %d are free and %d out of 1000", s.Level/limit.Micro, s.Out.Stock/limit.Micro)
	}
}

// What was used and is leased of a bucket that becomes a fixed window is not there once more.
func TestWhatWasOutOfABucketIsPartOfTheWindow(t *testing.T) {
	var s lease.State
	now := int64(1_760_000_400_000_000)
	had, err := s.Renew(now, &lease.Renewal{Key: "b", Spec: leasetest.Bucket(100, 1000), Holder: "a", Number: 1, Began: 1, Waiting: 600, Largest: 1})
	if err != nil || had.Tokens < 600 || had.Tokens >= 1000 {
		t.Fatalf("got %+v, %v, want 600 tokens at least", had, err)
	}
	window := leasetest.Window(1000, 60_000_000, now)
	got, err := s.Renew(now+1000, &lease.Renewal{Key: "b", Spec: window, Holder: "b", Number: 1, Began: 1, Waiting: 1000, Largest: 1})
	// Its trickle brought a token meanwhile.
	if err != nil || had.Tokens+got.Tokens != 999 {
		t.Errorf("got %d tokens, %v, where %d are leased, want 999 in all", got.Tokens, err, had.Tokens)
	}
}

// What a lease's trickle brought after its bucket became a window is taken out of that when its holder renews.
func TestATrickleAfterAChangeIsCharged(t *testing.T) {
	var s lease.State
	now := int64(1_760_000_400_000_000)
	renew := func(at int64, r lease.Renewal) lease.Grant {
		t.Helper()
		r.Key, r.Began = "b", 1
		g, err := s.Renew(now+at, &r)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	window := leasetest.Window(1000, 60_000_000, now)
	had := renew(0, lease.Renewal{Spec: leasetest.Bucket(100, 1000), Holder: "a", Number: 1, Waiting: 10, Largest: 1})
	renew(1000, lease.Renewal{Spec: window, Holder: "b", Number: 1})
	before, drawn := s.Level, had.Trickle/1000 // in the first millisecond
	renew(150_000, lease.Renewal{Spec: window, Holder: "a", Number: 2, Admitted: had.Tokens + 10, Final: true})
	if got, want := before-s.Level, 10*limit.Micro-drawn; had.Trickle == 0 || got != want {
		t.Errorf("10 beyond what was lent at once, a trickle of %d: %d are taken out, want %d", had.Trickle, got, want)
	}
}

func BenchmarkStep(b *testing.B) {
	var s lease.State
	now := int64(1_760_000_000_000_000)
	holders := make([]string, 100)
	for i := range holders {
		holders[i] = fmt.Sprint("agent-", i, "/1")
	}
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		now += 5_000
		n := i/100 + 1
		r := lease.Renewal{
			Key: "b", Spec: leasetest.Bucket(10_000, 20_000), Holder: holders[i%100], Now: now,
			Number: n, Began: 1, Admitted: n * 45, Told: (n - 1) * 45,
		}
		if _, err := s.Renew(now, &r); err != nil {
			b.Fatal(err)
		}
	}
}

// A renewal of a holder that is known allocates nothing: its record is written over.
func TestRenewAllocatesNothing(t *testing.T) {
	var s lease.State
	r := lease.Renewal{
		Key: "bucket", Holder: "a", Now: 1_700_000_000_000_000, Number: 1, Began: 1, Waiting: 1,
		Spec: lease.Spec{Algorithm: limit.TokenBucket, Units: 1000, Period: 1_000_000, Burst: 1000, EpsilonPPM: 50_000},
	}
	renew := func() {
		if _, err := s.Renew(r.Now, &r); err != nil {
			t.Fatal(err)
		}
		r.Number, r.Now, r.Waiting = r.Number+1, r.Now+1_000, 0
		r.Told, r.Admitted = r.Admitted, r.Admitted+1
	}
	renew()
	if n := testing.AllocsPerRun(1000, renew); n > 0 {
		t.Errorf("got %v allocations a renewal, want none", n)
	}
}
