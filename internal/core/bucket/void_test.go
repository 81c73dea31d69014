package bucket

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// What trickles to a lease that has all that it may have is void. The next renewal says how much that surely was, and when the last of it came; it is
// told once.
func TestVoidIsTold(t *testing.T) {
	const second = 1_000_000
	grant := lease.Grant{Tokens: 79, Trickle: 10 * limit.Micro, Pile: 1, TTL: 120 * second} // ten of eighty in the cell
	begin := func(epsilon, strain int64) *Bucket {
		b := Of(&limit.Limit{Name: "l", Rate: limit.Rate{Units: 1, Per: time.Second}, EpsilonPPM: epsilon, Enforcement: strictIf(epsilon)})
		again(b, second, 1, lease.Grant{TTL: second})
		again(b, second, strain, grant)
		again(b, second, strain, grant)
		return b
	}
	for _, c := range []struct {
		what            string
		epsilon, strain int64
		rest, busy      int64 // seconds in which nothing is asked for, and in which then two units are ten times a second
		void, ago       int64 // units, and milliseconds
	}{
		{"all that trickles, but for the cell's", 50_000, 1, 10, 0, 89, 125},
		{"strict limits tell as well", 0, 1, 10, 0, 89, 125},
		{"then it finds room", 50_000, 1, 10, 3, 94, 2625},
		{"strained, half of the lease is in the cell", 50_000, 4, 10, 0, 59, 500},
		{"heavily strained, nobody knows", 50_000, 8, 10, 0, 0, 0},
		{"no more than the cell's", 50_000, 1, 1, 0, 0, 0},
	} {
		b := begin(c.epsilon, c.strain)
		now := (1 + c.rest) * second
		for range c.busy * 10 {
			for range 2 {
				if got := ask(b, now, 1, false); got != Admitted {
					t.Fatalf("%s: %v, want Admitted", c.what, got)
				}
			}
			now += second / 10
		}
		r := b.RenewStrained(now, false, c.strain)
		if ago := r.VoidAgo / 1000; r.Void != c.void || ago != c.ago || (r.VoidAgo > 0) != (c.void > 0) {
			t.Errorf("%s: said are %d units, the last %d ms ago; want %d and %d", c.what, r.Void, ago, c.void, c.ago)
		}
		if lost := b.RenewStrained(now, false, c.strain); lost.Void != r.Void {
			t.Errorf("%s: said again, for there was no answer, are %d units, want %d", c.what, lost.Void, r.Void)
		} else {
			g := grant
			g.Number = lost.Number
			b.Apply(now, g)
		}
		if r := again(b, now, c.strain, grant); r.Void != 0 || r.VoidAgo != 0 {
			t.Errorf("%s: after an answer: %d units %d us ago, want none", c.what, r.Void, r.VoidAgo)
		}
		if c.void == 0 {
			continue
		}
		now += 10 * second
		last := b.RenewStrained(now, true, c.strain)
		b.Fail(now)
		if r := b.RenewStrained(now+second, true, c.strain); last.Void == 0 || r.Void < last.Void || r.VoidAgo < second {
			t.Errorf("%s: the last renewal says %d units, and when that was not answered %d, %d us ago", c.what, last.Void, r.Void, r.VoidAgo)
		}
	}
}

// What is void while a renewal is under way is not told by it, and is by the next. However little of the trickle is left, what is void was so within the lease.
func TestVoidOfARenewalUnderWay(t *testing.T) {
	const second = 1_000_000
	l := &limit.Limit{Name: "l", Rate: limit.Rate{Units: 1000, Per: time.Second}, Burst: 1000, EpsilonPPM: 50_000}
	b := Of(l)
	grant := lease.Grant{Tokens: 79, Trickle: 100 * limit.Micro, Pile: 1, TTL: 120 * second}
	again(b, second, 1, grant)
	b.Take(5) // who knows when
	grant.Number = b.Renew(2*second, false).Number
	grant.Trickle = 1
	b.Apply(3*second, grant)
	if r := b.Renew(3*second, false); r.Void != 85 || r.VoidAgo != second {
		t.Errorf("said are %d units, %d us ago; want 85 of the 100 of the second that the renewal took, for 5 found room, and no longer ago than that was sent", r.Void, r.VoidAgo)
	}
}
