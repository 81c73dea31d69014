package lease_test

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// A unit that a holder admitted on credit is taken out of the bucket, whether the store knows nothing of the holder, or
// still has the record of a lease that it gave back, let lapse, or has not heard the end of.
func TestCreditIsTakenOut(t *testing.T) {
	const second = 1_000_000
	for _, c := range []struct {
		name  string
		lease bool // it had one
		back  bool // and gave it back
		after int64
	}{
		{"a newcomer", false, false, 0},
		{"one that gave its lease back", true, true, 130 * second},
		{"one that gave its lease back just now", true, true, second},
		{"one whose lease lapsed", true, false, 130 * second},
		{"one whose lease lives", true, false, second / 10},
	} {
		remains := func(credit int64) int64 {
			s := memstore.New()
			renew := func(r lease.Renewal) lease.Grant {
				t.Helper()
				r.Key, r.Spec = "k", lease.Spec{Algorithm: limit.TokenBucket, Units: 3600, Period: 3600 * second, Burst: 1000, EpsilonPPM: 50_000}
				a := s.Renew(t.Context(), []lease.Renewal{r})[0]
				if a.Err != nil {
					t.Fatal(a.Err)
				}
				return a.Grant
			}
			now := int64(1_760_000_000_000_000)
			renew(lease.Renewal{Holder: "other", Number: 1, Began: 1, Now: now, Waiting: 500, Largest: 1})
			if c.lease {
				renew(lease.Renewal{Holder: "h", Number: 1, Began: 1, Now: now, Waiting: 10, Largest: 1})
			}
			if c.back {
				renew(lease.Renewal{Holder: "h", Number: 2, Began: 1, Now: now + second/10, Admitted: 10, Final: true, Elapsed: second / 10})
			}
			g := renew(lease.Renewal{Holder: "h", Number: 10, Began: 10, Now: now + c.after, Admitted: credit})
			return g.Remaining
		}
		if with, without := remains(1), remains(0); with != without-1 {
			t.Errorf("%s: %d are left after a unit on credit, and %d without; want one less", c.name, with, without)
		}
	}
}
