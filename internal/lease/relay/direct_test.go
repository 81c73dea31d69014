package relay_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/leasetest"
	"github.com/f4ee788f/quota/internal/lease/memstore"
	"github.com/f4ee788f/quota/internal/lease/relay"
)

// An agent goes from the store to a relay and back, twice there each time, and spends all that it is granted: none of what it spent is
// to be had again.
func TestToAndFroIsNoGain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := relay.New(memstore.New(), "server-1")
		held := leasetest.Bucket(100, 1000)
		through := held
		through.Borrow = 1 // the store's
		var generation, number, spent, told int64
		start := time.Now()
		for range 20 {
			for _, spec := range []lease.Spec{through, through, held} {
				number++
				r := ask("a", spec, number, 200)
				r.Admitted, r.Told, r.Generation = spent, told, generation
				if generation != 0 {
					r.ExpiresIn = 100_000
				}
				g := one(t, s, r)
				told, generation = spent, g.Generation
				spent += g.Tokens
				synctest.Wait()
				time.Sleep(10 * time.Millisecond)
			}
		}
		if took := time.Since(start); spent > int64(1000+1+28)+int64(100*took.Seconds())+50 {
			t.Errorf("%d admitted in %v of a bucket of 1,000 and 100 a second", spent, took)
		}
		_ = s.Close()
	})
}

// A server that does not relay answers an agent that comes from one that does. The bucket was not forgotten, and its generation
// is not a relay's from then on, with which all that the store grants would be strange to every relay.
func TestGenerationStaysTheStores(t *testing.T) {
	up := memstore.New()
	s := relay.New(up, "server-1")
	spec := leasetest.Bucket(100, 1000)
	g := one(t, s, ask("a", spec, 1, 10))
	r := ask("a", spec, 2, 10)
	r.Admitted, r.Told, r.Generation, r.Trickle, r.ExpiresIn = 10, 0, g.Generation, g.Trickle, 100_000
	if g := one(t, relay.Direct{Store: up}, r); g.Generation != 1 || g.Tokens < 10 {
		t.Errorf("got %+v, want what waits, of a bucket that was not forgotten", g)
	}
	r.Holder = "b" // of a build that does not know relays
	if g := one(t, up, r); g.Generation != 2 {
		t.Errorf("got generation %d, want 2: the store's own, and another", g.Generation)
	}
	_ = s.Close()
}
