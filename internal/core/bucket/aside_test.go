package bucket

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// again has the bucket renewed under strain, and gives it the grant.
func again(b *Bucket, now, strain int64, g lease.Grant) lease.Renewal {
	r := b.RenewStrained(now, false, strain)
	g.Number = r.Number
	b.Apply(now, g)
	return r
}

// What lies aside keeps a lease its room for noise: requests that come as fast as the trickle brings, now few and now many, find what they want for as long as
// it lasts. With all of it in the cell, what trickles until that is empty is void, and they live from hand to mouth from then on.
func TestAsideKeepsRoomForNoise(t *testing.T) {
	for _, strain := range []int64{1, 4} {
		now := int64(1_000_000)
		b := leasedOf(t, now, lease.Grant{})
		again(b, now, strain, lease.Grant{Tokens: 64, Trickle: 10 * limit.Micro, Pile: 1, TTL: 120_000_000})
		for i := range 70 {
			n := 8
			if i > 30 {
				n += 16*(i%2) - 8
			}
			for range n {
				if got := ask(b, now, 1, false); got != Admitted {
					t.Fatalf("strain %d: after %.1f s: got %v, want Admitted", strain, float64(now)/1e6-1, got)
				}
			}
			now += 800_000
		}
	}
}

// However much lies aside, an agent that rests and then has much to do has no more at once than stock and pile: unless it is lax, for it is under heavy
// strain, or has next to nothing and some, and the lease is not its first.
func TestLaxLeases(t *testing.T) {
	for _, c := range []struct {
		what         string
		epsilon      int64
		first        bool
		strain, room int64
		lax          bool
	}{
		{"without strain", 50_000, false, 1, 40, false},
		{"without strain, little", 50_000, false, 1, 3, false},
		{"strained", 50_000, false, 4, 40, false},
		{"strained, little", 50_000, false, 2, 7, true},
		{"heavily strained", 50_000, false, 8, 40, true},
		{"heavily strained, its first", 50_000, true, 16, 40, false},
		{"heavily strained, strict", 0, false, 16, 40, false},
	} {
		now := int64(1_000_000)
		b := Of(&limit.Limit{Name: "l", Rate: limit.Rate{Units: 1, Per: time.Second}, EpsilonPPM: c.epsilon, Enforcement: strictIf(c.epsilon)})
		if !c.first {
			again(b, now, c.strain, lease.Grant{TTL: 1_000_000})
		}
		if r := again(b, now, c.strain, lease.Grant{Tokens: c.room - 1, Trickle: limit.Micro, Pile: 1, TTL: 120_000_000, DenyFor: 120_000_000}); r.Strain != c.strain {
			t.Errorf("%s: said was a strain of %d, want %d", c.what, r.Strain, c.strain)
		}
		now += 60_000_000
		got := int64(0)
		for ask(b, now, 1, false) == Admitted {
			got++
		}
		if most := c.room; (got > most) != c.lax {
			t.Errorf("%s: %d at once, of %d; lax: %v", c.what, got, most, c.lax)
		}
	}
}

// What lies aside is there for whatever is not one request for one unit: a large one, one that waits its turn, who looks, who tells what it has left,
// a renewal, and the end of the lease.
func TestAsideIsThere(t *testing.T) {
	const now = 1_000_000
	begin := func() *Bucket {
		b := leasedOf(t, now, lease.Grant{Tokens: 39, Trickle: limit.Micro, Pile: 1, Remaining: 3, TTL: 10_000_000, DenyFor: 10_000_000})
		if aside := b.aside(); aside != 34 {
			t.Fatalf("%d lie aside, want 34: seven parts of eight", aside)
		}
		return b
	}
	if b := begin(); b.Take(6) || ask(b, now, 39, false) != Admitted {
		t.Error("a request for all of it was not admitted")
	}
	b := begin()
	if s := b.State(now); s.Tokens != 39 {
		t.Errorf("the state has %d tokens, want 39", s.Tokens)
	}
	for range 5 {
		b.Take(1)
	}
	if left := b.State(now).Remaining; left != 34 {
		t.Errorf("%d are left, want 34", left)
	}
	if v := b.Foresee(now, 1, false); v.Outcome != Admitted {
		t.Errorf("foreseen is %v, want Admitted", v.Outcome)
	}
	if got := b.RetryAfter(now, 34, false); got != 1 {
		t.Errorf("34 are there in %d us, want now", got)
	}
	if _, shut := b.Shut(now); shut {
		t.Error("denied without a look, and 34 lie aside")
	}
	if got := ask(b, now, 1, false); got != Admitted {
		t.Errorf("the sixth: %v, want Admitted", got)
	}
	if r := b.Renew(now, false); r.Held != 33 {
		t.Errorf("a renewal holds %d, want 33", r.Held)
	}
	b = begin()
	w := &Waiter{Units: 20}
	if served, _ := b.Join(w); len(served) != 1 || w.verdict.Outcome != Admitted {
		t.Errorf("one that would wait its turn: %+v", w.verdict)
	}
	b = begin()
	if r := b.Renew(now, true); r.Held != 39 || b.State(now).Tokens != 0 {
		t.Errorf("given back are %d, want 39, and none is left: %+v", r.Held, b.State(now))
	}
	b = begin()
	b.Expire(now+60_000_000, false)
	if s := b.State(now + 60_000_000); s.Tokens != 0 || s.Live {
		t.Errorf("after its end: %+v", s)
	}
	b = begin()
	if n := b.Drain(); n != 39 {
		t.Errorf("drained were %d, want 39", n)
	}
	if admitted, denied := collect(b); admitted+denied != 0 {
		t.Errorf("%d count as admitted and %d as denied", admitted, denied)
	}
}

// What a reservation costs beyond what it had is paid from what lies aside, too, and not owed beside it.
func TestBeyondAReservationIsPaidFromAside(t *testing.T) {
	const now = 1_000_000
	b := leasedOf(t, now, lease.Grant{Tokens: 39, Trickle: limit.Micro, Pile: 1, TTL: 10_000_000})
	b.Hold(1)
	b.Take(1)
	b.Reserve(1, 0)
	b.Settle(1, 21, 0, nil)
	left := 0
	for ask(b, now, 1, false) == Admitted {
		left++
	}
	if debt := b.debt; left != 18 || debt != 0 {
		t.Errorf("of 39 21 cost one: %d are left, want 18, and %d are owed", left, debt)
	}
}

// Units that were nobody's and come back while others lie aside are nobody's again.
func TestNobodysUnitsComeBackBesideAside(t *testing.T) {
	const now = 1_000_000
	b := leasedOf(t, now, lease.Grant{Tokens: 39, Trickle: limit.Micro, Pile: 1, TTL: 10_000_000})
	b.Admit(10)
	b.PutBack(10)
	if r := b.Renew(now, false); r.Held != 39 || b.nobodys != 0 {
		t.Errorf("a renewal holds %d, want 39; %d that came back are still to be nobody's", r.Held, b.nobodys)
	}
}

// A leaky bucket does not ask for what it has not, but denies it: what trickled is not void while all of it is in the cell.
func TestPacedRequestsAreNotDeniedForWhatMayBeVoid(t *testing.T) {
	now := int64(1_000_000)
	b := Of(&limit.Limit{Name: "l", Algorithm: limit.LeakyBucket, Rate: limit.Rate{Units: 100, Per: time.Second}, Burst: 100, EpsilonPPM: 50_000})
	g := lease.Grant{Trickle: 10 * limit.Micro, Pile: 2, TTL: 10_000_000, Remaining: 1}
	again(b, now, 1, g)
	denied := 0
	for range 2000 {
		next := now + 125_000
		for at := b.Due(now); at <= next; at = b.Due(now) { // the owner looks, and renews
			if now = max(now+1, at); b.Due(now) <= now {
				again(b, now, 1, g)
			}
		}
		if now = next; ask(b, now, 1, false) != Admitted {
			denied++
		}
	}
	if denied > 40 {
		t.Errorf("%d of 2,000 were denied at 8/s of 10/s", denied)
	}
}
