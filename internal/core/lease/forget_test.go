package lease_test

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// A store forgot while all holders were out of contact. What a holder spent of its fallback until they could come back
// costs nothing, and it keeps what it has. Of what it spent later it pays its part by time. Others pay for all.
func TestFallbackOfAForgottenBucket(t *testing.T) {
	const second, began = 1_000_000, 1_760_000_000_000_000
	spec := lease.Spec{Algorithm: limit.TokenBucket, Units: 100, Period: second, Burst: 1000, EpsilonPPM: 50_000}
	for _, c := range []struct {
		name    string
		after   int64 // since the store is back, which began the bucket for another holder
		alone   bool
		trickle bool // whether it has one then
		held    int64
		left    int64 // in the bucket and with it
	}{
		{"at once", 100_000, true, true, 7, 7},
		{"at once, on credit", 100_000, false, false, 0, -20},
		{"after all could come", 3 * second, true, true, 7, 200 + 5 - 10}, // what it held then is void
		{"after all could come, on credit", 3 * second, false, true, 0, 200 + 5 - 20},
	} {
		s := memstore.New()
		renew := func(r lease.Renewal) lease.Grant {
			t.Helper()
			r.Key, r.Spec, r.Number, r.Began = "k", spec, 9, 9
			r.Memory = lease.Memory{Since: began, Lost: true}
			a := s.Renew(t.Context(), []lease.Renewal{r})[0]
			if a.Err != nil {
				t.Fatal(a.Err)
			}
			return a.Grant
		}
		renew(lease.Renewal{Holder: "other", Now: began, Final: true})
		r := lease.Renewal{Holder: "h", Now: began + c.after, Admitted: 20, Held: c.held}
		if c.alone {
			r.Alone, r.Trickle, r.Elapsed = true, 30*limit.Micro, 4*second
		}
		g := renew(r)
		if left := spec.Burst - g.Reset*spec.Units/second + g.Tokens; left < c.left-1 || left > c.left+1 || (g.Trickle > 0) != c.trickle {
			t.Errorf("%s: %d are left, with a trickle of %d; want %d", c.name, left, g.Trickle, c.left)
		}
	}
}

// A holder of a long lease comes back when the bucket that was forgotten is nearly full again.
func TestLongLeaseOfAForgottenBucket(t *testing.T) {
	const second, began = 1_000_000, 1_760_000_000_000_000
	s := memstore.New()
	renew := func(r lease.Renewal) lease.Grant {
		t.Helper()
		r.Key, r.Number, r.Began, r.Memory = "k", 9, 9, lease.Memory{Since: began, Lost: true}
		r.Spec = lease.Spec{Algorithm: limit.TokenBucket, Units: 100, Period: second, Burst: 1000, EpsilonPPM: 50_000}
		a := s.Renew(t.Context(), []lease.Renewal{r})[0]
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		return a.Grant
	}
	renew(lease.Renewal{Holder: "other", Now: began, Final: true})
	g := renew(lease.Renewal{Holder: "h", Now: began + 20*second, Held: 4, Trickle: limit.Micro, ExpiresIn: 3000 * second, Elapsed: 600 * second, Generation: 1})
	if g.TTL < 10*second || g.TTL > 128*second {
		t.Errorf("it has a lease of %d s, want one for 128 units at most", g.TTL/second)
	}
}

// A store that began anew does not know that it forgot anything. A holder that was out of contact proves it, for as long
// as holders come back. Later a new bucket is full.
func TestFallbackProvesALoss(t *testing.T) {
	const second, began = 1_000_000, 1_760_000_000_000_000
	for after, want := range map[int64]int64{second / 10: 7, 2 * second: 980} {
		s := memstore.New()
		g := s.Renew(t.Context(), []lease.Renewal{{
			Key: "k", Holder: "h", Number: 9, Began: 9, Now: began + after, Memory: lease.Memory{Since: began},
			Spec:     lease.Spec{Algorithm: limit.TokenBucket, Units: 100, Period: second, Burst: 1000, EpsilonPPM: 50_000},
			Admitted: 20, Held: 7, Alone: true, Trickle: 30 * limit.Micro, Elapsed: 4 * second,
		}})[0].Grant
		if left := 1000 - g.Reset/10_000 + g.Tokens; left < want-1 || left > want+1 {
			t.Errorf("%d ms after the store began %d are left, want %d", after/1000, left, want)
		}
	}
}
