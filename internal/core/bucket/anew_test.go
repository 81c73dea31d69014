package bucket

import (
	"context"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// What a request waited for is taken out of the bucket once, also when the agent reports it after the
// store has forgotten the agent.
func TestSpentOnceWhateverTheSilence(t *testing.T) {
	for _, algorithm := range []limit.Algorithm{limit.TokenBucket, limit.FixedWindow, limit.SlidingWindowLog} {
		for _, silence := range []time.Duration{time.Second, 4 * time.Minute, 7 * time.Minute, 12 * time.Minute, time.Hour} {
			const units, day = 7, 24 * time.Hour // so few that no stock is granted
			l := limit.Limit{Name: "l", Algorithm: algorithm, Rate: limit.Rate{Units: units, Per: day}}
			spec := lease.Spec{
				Algorithm: algorithm, Units: units, Period: day.Microseconds(),
				WindowStart: worldEpoch, WindowEnd: worldEpoch + day.Microseconds(), NextWindowEnd: worldEpoch + 2*day.Microseconds(),
			}
			if algorithm == limit.TokenBucket {
				l.Burst, spec.Burst = units, units
				spec.Units = 1 // so that a token in a day comes back
			}
			store := memstore.New()
			renew := func(now int64, r lease.Renewal) lease.Grant {
				r.Key, r.Spec, r.Now = "bucket", spec, worldEpoch+now
				a := store.Renew(context.Background(), []lease.Renewal{r})[0]
				if a.Err != nil {
					t.Fatal(a.Err)
				}
				return a.Grant
			}
			b, now, admitted := Of(&l), int64(1_000_000), 0
			for range 5 {
				b.Expire(now, false)
				if b.Ask(now, 1, false, false).Outcome == Wait {
					b.Enqueue(&Waiter{Units: 1, Done: func(Verdict) {}})
				}
				admitted++
				r := b.Renew(now, false)
				r.Holder = "agent"
				b.Apply(now+1_000, renew(now, r))
				now += 30_000_000
				b.Expire(now, false)
				now += silence.Microseconds()
			}
			other := renew(now, lease.Renewal{Holder: "other", Number: 1, Began: 1, Waiting: 10, Largest: 1})
			if want := int64(units - admitted); other.Tokens != want {
				t.Errorf("algorithm %d, silent for %v: %d units are left of %d after %d admitted, want %d", algorithm, silence, other.Tokens, units, admitted, want)
			}
		}
	}
}

// What was spent beyond the lease is reported, however long ago.
func TestOverspentIsReported(t *testing.T) {
	b := Of(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 5, Per: time.Hour}, Burst: 5, OnOutage: limit.OutageOpen})
	b.Apply(2_000, lease.Grant{Number: b.Renew(1_000, false).Number, Tokens: 1, TTL: 1_000_000})
	if !b.Take(1) {
		t.Fatal("the token granted is not there")
	}
	b.Expire(2_000_000, false)
	for range 2 {
		if v := b.Ask(3_000_000, 1, true, false); v.Outcome != Admitted {
			t.Fatalf("out of contact: %v", v)
		}
	}
	if r := b.Renew(3600_000_000, false); r.Admitted-r.Told != 3 {
		t.Errorf("%d of 3 units are reported as spent", r.Admitted-r.Told)
	}
}

// A request that comes after the end of a quota's window, as far as can be told, is not denied
// for what that window had no more.
func TestDenialsEndWithTheWindow(t *testing.T) {
	const day = 86_400_000_000
	b := Of(&limit.Limit{Name: "l", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 5, Per: 24 * time.Hour}})
	g := lease.Grant{Number: b.Renew(1_000_000, false).Number, TTL: 500_000, DenyFor: 500_000, Reset: 500_000, ValidFrom: 1, ValidUntil: 1 + day}
	b.Apply(1_002_000, g) // the store answered about 1 ms ago
	if v := b.Ask(1_500_900, 1, false, false); v.Outcome != Denied {
		t.Errorf("before the edge: %v, want it denied", v)
	}
	if v := b.Ask(1_501_100, 1, false, false); v.Outcome != Wait {
		t.Errorf("after the edge: %v, want it to wait", v)
	}
}
