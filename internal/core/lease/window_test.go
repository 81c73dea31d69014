package lease_test

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
)

// A holder that has not heard of a smaller part of the next window goes over to the larger one: an answer was lost, and
// the answer to the next message comes after the edge. Another does not have what is between the two.
func TestAPartStaysOutUntilASmallerOneIsHeardOf(t *testing.T) {
	var s lease.State
	edge := leasetest.Window(1000, 10_000_000, 1_760_000_000_000_000).WindowEnd
	begin := edge - 1_000_000
	number := map[string]int64{}
	renew := func(at int64, r lease.Renewal) int64 {
		t.Helper()
		number[r.Holder]++
		r.Key, r.Number, r.Began, r.Largest = "b", number[r.Holder], 1, 1
		r.Spec = leasetest.Window(1000, 10_000_000, begin+at)
		r.Spec.EpsilonPPM = 0
		g, err := s.Renew(begin+at, &r)
		if err != nil {
			t.Fatal(err)
		}
		return g.Next
	}
	renew(0, lease.Renewal{Holder: "a", Waiting: 500})
	renew(200_000, lease.Renewal{Holder: "a", Waiting: 500, Admitted: 500, Heard: 1})
	had := renew(400_000, lease.Renewal{Holder: "a", Waiting: 100, Admitted: 1000, Told: 500, Heard: 2})
	renew(500_000, lease.Renewal{Holder: "b", Waiting: 500})
	renew(600_000, lease.Renewal{Holder: "b", Waiting: 500, Denied: 500, Heard: 1})
	lost := renew(621_000, lease.Renewal{Holder: "a", Waiting: 1, Admitted: 1000, Told: 1000, Denied: 100, Heard: 3})
	if lost >= had {
		t.Fatalf("a has %d of the next window, and then %d: the second is to be smaller", had, lost)
	}
	renew(930_000, lease.Renewal{Holder: "a", Waiting: 1, Admitted: 1000, Told: 1000, Denied: 101, Heard: 3})
	if b := renew(940_000, lease.Renewal{Holder: "b", Waiting: 500, Denied: 5000, Heard: 2}); had+b > 1000 {
		t.Errorf("a goes over to the %d that it has heard of, b to %d, of 1000", had, b)
	}
}
