package leasetest

import (
	"context"
	"testing"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/limit"
)

// kept are the cases of a relay, which makes leases of its own out of its lease.
func kept(t *testing.T, open func(t *testing.T) lease.Store) {
	one := func(t *testing.T, s lease.Store, r lease.Renewal) lease.Grant {
		t.Helper()
		a := s.Renew(context.Background(), []lease.Renewal{r})[0]
		if a.Err != nil {
			t.Fatalf("renewal %d of %s: %v", r.Number, r.Holder, a.Err)
		}
		return a.Grant
	}
	relay := func(at, number int64, kept lease.Sums) lease.Renewal {
		r := ask("relay", Bucket(1000, 1000), start+at, number, 0)
		r.Kept, r.Held = kept, kept.Stock/limit.Micro
		return r
	}

	t.Run("a relay's share shrinks, and what it made leases of does not", func(t *testing.T) {
		s := open(t)
		first := one(t, s, relay(0, 1, lease.Sums{Demand: 2_000_000}))
		g := one(t, s, relay(300_000, 2, lease.Sums{Stock: first.Tokens * limit.Micro, Pile: first.Pile * limit.Micro, Demand: 2_000_000}))
		if g.Trickle != 1000*limit.Micro || g.Tokens < max(first.Tokens, 8) {
			t.Fatalf("alone at twice the limit: got %+v after %+v, want all of the rate and the tokens kept", g, first)
		}
		out := lease.Sums{Stock: g.Tokens * limit.Micro, Pile: g.Pile * limit.Micro, Trickle: g.Trickle, Demand: 1}
		after := one(t, s, relay(600_000, 3, out))
		if after.Tokens < g.Tokens || after.Pile < g.Pile {
			t.Errorf("got %d tokens and a pile of %d, want no fewer than the %d and %d that are out", after.Tokens, after.Pile, g.Tokens, g.Pile)
		}
		if after.Trickle > 10*limit.Micro {
			t.Errorf("got a trickle of %d for hardly any demand", after.Trickle)
		}
		busy := ask("busy", Bucket(1000, 1000), start+600_000, 1, 100)
		if g := one(t, s, busy); g.Trickle > 0 {
			t.Errorf("another got a trickle of %d, and all of the rate is drawn", g.Trickle)
		}
		one(t, s, relay(900_000, 4, lease.Sums{Demand: 1}))
		busy = ask("busy", Bucket(1000, 1000), start+900_000, 2, 100)
		if g := one(t, s, busy); g.Trickle == 0 {
			t.Error("another got no trickle, and nobody draws any")
		}
	})

	t.Run("what a relay's leases may have spent is not granted again", func(t *testing.T) {
		s := open(t)
		at, number := int64(0), int64(0)
		var g lease.Grant
		renew := func(after, admitted int64) int64 {
			at, number = at+after, number+1
			r := relay(at, number, lease.Sums{Stock: g.Tokens * limit.Micro, Pile: g.Pile * limit.Micro, Trickle: g.Trickle, Demand: 3_000_000})
			r.Admitted = admitted
			g = one(t, s, r)
			return g.Remaining
		}
		one(t, s, ask("drain", Bucket(1000, 1000), start, 1, 900))
		ended := ask("drain", Bucket(1000, 1000), start, 2, 0)
		ended.Admitted, ended.Final = 900, true
		one(t, s, ended)
		renew(0, 0)
		renew(200_000, 0)
		before, trickled := renew(200_000, 0), g.Trickle/limit.Micro*4/10
		if trickled < 100 {
			t.Fatalf("got %+v, want a trickle", g)
		}
		// All that it had at once it still has; what trickled is not reported, nor held.
		after := renew(400_000, 0)
		if most := before + 400 - trickled + 1; after > most {
			t.Errorf("%d are left, want %d at most: what trickled to the relay's leases counts as not spent", after, most)
		}
		if now := renew(1, trickled); now < after-1 {
			t.Errorf("%d are left, and %d were: what trickled is taken out twice", now, after)
		}
	})

	t.Run("what a relay's leases never reported does not pile up", func(t *testing.T) {
		s := open(t)
		at := int64(0)
		var g lease.Grant
		renew := func(number, admitted int64) {
			r := relay(at, number, lease.Sums{Stock: g.Tokens * limit.Micro, Pile: g.Pile * limit.Micro, Trickle: g.Trickle, Demand: 800_000})
			r.Admitted = admitted
			g = one(t, s, r)
			at += g.TTL / 2
		}
		for n := range int64(100) {
			renew(n+1, 0)
		}
		// As much as it was granted last and what trickles in a lease's time may still be to come. It is five times that.
		renew(101, 50_000)
		if g.Remaining > 100 {
			t.Errorf("%d are left: 50,000 that a bucket of 1,000 a second never had are taken to be lent", g.Remaining)
		}
	})

	t.Run("a relay's generation is not the bucket's", func(t *testing.T) {
		s := open(t)
		one(t, s, ask("a", Bucket(1000, 1000), start, 1, 10))
		r := ask("b", Bucket(1000, 1000), start+1000, 5, 10) // of a server that takes it for a store's
		r.Generation, r.ExpiresIn, r.Trickle = lease.Relayed+77, 100_000, limit.Micro
		if g := one(t, s, r); g.Generation != 2 {
			t.Errorf("the bucket is in generation %d, want 2", g.Generation)
		}
	})
}
