package client

import (
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Of several limits that allow, a decision speaks of the one with the least left, not of
// the one that is strictest on paper.
func TestDecisionTellsTheTightest(t *testing.T) {
	user := limit.Limit{Name: "per-user", Rate: limit.Rate{Units: 60, Per: time.Minute, Calendar: limit.Minute}, Burst: 60, By: []string{"user"}}
	bubble(t, plans(1, hourly("requests", 100), user, limit.Limit{Name: "count", By: []string{"user"}, Meter: "count"}), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		ask := func(user string, n int64) Decision {
			d := c.AllowN(t.Context(), n, tenant("a"), User(user))
			if !d.Allowed {
				t.Fatalf("%+v by %q", d, d.Limit())
			}
			return d
		}
		want := func(d Decision, name string, remaining int64) {
			t.Helper()
			a := d.Details()
			if d.Limit() != name || d.Details().Remaining != remaining || a.Limit != name || a.Remaining != remaining {
				t.Errorf("%d left of %q, want %d of %q", d.Details().Remaining, d.Limit(), remaining, name)
			}
		}
		want(ask("u", 10), "per-user", 50)
		want(ask("u", 45), "per-user", 5)
		want(ask("v", 40), "requests", 5)
		if d := c.AllowN(t.Context(), 6, tenant("a"), User("u")); d.Allowed || d.Limit() == "" {
			t.Errorf("6 more: %+v by %q, want denied", d, d.Limit())
		}
		shut(t, c)
	})
}

// A decision is handed up in registers: Go does so with what is no larger than four words and has no more than four fields.
func TestDecisionFitsRegisters(t *testing.T) {
	if size, fields := unsafe.Sizeof(Decision{}), reflect.TypeFor[Decision]().NumField(); size > 4*unsafe.Sizeof(uintptr(0)) || fields > 4 {
		t.Errorf("a decision has %d bytes and %d fields, want at most four words and four fields", size, fields)
	}
}

// A request that stays away as long as it is told passes then, and does not much before; what
// is left falls with what is spent and is nothing at a denial; and a bucket is as it was
// when its reset is over. Each algorithm says so of itself.
func TestDecisionsOfEveryAlgorithm(t *testing.T) {
	minute := limit.Rate{Units: 6, Per: time.Minute, Calendar: limit.Minute}
	for _, l := range []limit.Limit{
		{Algorithm: limit.TokenBucket, Rate: minute, Burst: 6},
		{Algorithm: limit.FixedWindow, Rate: minute},
		{Algorithm: limit.SlidingWindow, Rate: minute},
		{Algorithm: limit.SlidingWindowLog, Rate: minute},
		{Algorithm: limit.LeakyBucket, Rate: minute, Burst: 1},
	} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			l.Name, l.Meter = "requests", "requests"
			bubble(t, plans(1, l), func(t *testing.T, s *fake) {
				s.leases = memstore.New()
				c := dial(t, s)
				ask := func() Decision { return c.Allow(t.Context(), tenant("a")) }
				time.Sleep(10 * time.Second) // into the minute
				capacity, full := int64(6), time.Minute
				if l.Algorithm == limit.SlidingWindow {
					full = 2 * time.Minute // the next window still counts this one
				}
				if l.Algorithm == limit.LeakyBucket {
					capacity = 1
				}
				if l.Algorithm == limit.SlidingWindowLog {
					full += 100 * time.Millisecond // it counts units as of when they could be spent at the latest
				}
				for i := range capacity {
					d := ask()
					if !d.Allowed {
						t.Fatalf("request %d of %d: %+v", i, capacity, d)
					}
					if got, want := d.Details().Remaining, capacity-i-1; got != want {
						t.Errorf("%d left after %d of %d, want %d", got, i+1, capacity, want)
					}
					if r := d.Details().Reset; r <= 0 || r > full {
						t.Errorf("reset in %v after %d units, want within %v", r, i+1, full)
					}
				}
				d := ask()
				if d.Allowed || d.Reason != ReasonLimit || d.Details().Remaining != 0 || d.Details().Quota != 6 || d.Details().Window != time.Minute {
					t.Fatalf("%+v, %d left of %d in %v; want denied with nothing left of 6 a minute", d, d.Details().Remaining, d.Details().Quota, d.Details().Window)
				}
				after := d.RetryAfter
				if after <= 0 || after > min(full, time.Minute+100*time.Millisecond) {
					t.Fatalf("retry after %v, want within a minute", after)
				}
				time.Sleep(after * 8 / 10)
				if d := ask(); d.Allowed {
					t.Errorf("allowed after 80 %% of %v", after)
				} else if d.RetryAfter > after {
					t.Errorf("after 80 %% of %v it is to stay away for %v more", after, d.RetryAfter)
				}
				time.Sleep(after*2/10 + 10*time.Millisecond)
				d = ask()
				// The first leases of a paced limit are short, and it cannot say what comes after them.
				for tries := 0; !d.Allowed && l.Algorithm == limit.LeakyBucket && tries < 5; tries++ {
					time.Sleep(d.RetryAfter + 10*time.Millisecond)
					d = ask()
				}
				if !d.Allowed {
					t.Errorf("%+v after it stayed away for %v, want allowed", d, after)
				}
				reset := ask().Details().Reset
				time.Sleep(reset + 2*time.Minute)
				if d := ask(); !d.Allowed || d.Details().Remaining != capacity-1 {
					t.Errorf("%+v, %d left after %v and more, want allowed with %d left", d, d.Details().Remaining, reset, capacity-1)
				}
				shut(t, c)
			})
		})
	}
}
