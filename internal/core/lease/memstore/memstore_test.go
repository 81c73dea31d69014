package memstore_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

func TestSuite(t *testing.T) {
	leasetest.Run(t, func(*testing.T) lease.Store { return memstore.New() })
}

// Buckets that are full again are forgotten as others come, so that memory follows
// what is in use, not what ever was.
func TestIdleBucketsGo(t *testing.T) {
	s := memstore.New()
	now := int64(1_760_000_000_000_000)
	const each = 5_000
	for round := range 10 {
		rs := make([]lease.Renewal, each)
		for i := range rs {
			rs[i] = lease.Renewal{
				Key: strconv.Itoa(round) + "/" + strconv.Itoa(i), Spec: leasetest.Bucket(10, 10), Holder: "a", Now: now,
				Number: 1, Began: 1, Waiting: 1,
			}
		}
		s.Renew(context.Background(), rs)
		now += 60_000_000
	}
	if n := s.Buckets(); n > 3*each {
		t.Errorf("%d buckets are kept after 10 rounds of %d, each of them idle by the next; want at most %d", n, each, 3*each)
	}
}

// Honest holders keep the bounds of sliding windows, logs, slots and buckets at every instant.
func TestBounds(t *testing.T) {
	unraced.Only(t)
	leasetest.Bounds(t, 280, func(*testing.T) lease.Store { return memstore.New() })
}

// Holders that pause and say what found no room keep the bound, with epsilon, and would not if stores were not told.
func TestVoids(t *testing.T) {
	unraced.Only(t)
	leasetest.Voids(t, 2000, func(*testing.T) lease.Store { return memstore.New() })
}

// A limit that changes its algorithm again and again admits no more than one that does not.
func TestChanges(t *testing.T) {
	leasetest.Changes(t, 200, func(*testing.T) lease.Store { return memstore.New() })
}
