package bucket

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// A request for more than the whole bucket ever holds is denied here, and is no
// demand that would draw the bucket's tokens to where they are of no use. A limit that
// is raised is gone by at once.
func TestLargerThanTheBucket(t *testing.T) {
	const now = 1_000_000
	l := limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10, Per: time.Second}, Burst: 100}
	b := Of(&l)
	if got := ask(b, now, 101, false); got != Denied {
		t.Errorf("101 of at most 100: got %v, want Denied", got)
	}
	if got := ask(b, now, 100, false); got != Wait {
		t.Errorf("100 of at most 100: got %v, want Wait", got)
	}
	if r := b.Renew(now, false); r.Denied != 0 || r.Waiting != 0 {
		t.Errorf("the store is told of %d units denied and %d waiting, want none", r.Denied, r.Waiting)
	}
	if _, denied := collect(b); denied != 101 {
		t.Errorf("got %d units denied for the ledger, want 101", denied)
	}
	l.Burst = 200
	b.Follow(TermsAlone(&l))
	if got := ask(b, now, 101, false); got != Wait {
		t.Errorf("101 of at most 200: got %v, want Wait", got)
	}
}

// What was granted for a request that it could not serve goes back soon, for the
// store takes it as spent.
func TestGrantedForNothing(t *testing.T) {
	const now = 1_000_000
	b := Of(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10, Per: time.Second}, Burst: 100})
	if ask(b, now, 50, false) != Wait {
		t.Fatal("the first request does not wait")
	}
	b.Enqueue(&Waiter{Units: 50})
	r := b.Renew(now, false)
	if r.Waiting != 50 || r.Largest != 50 {
		t.Errorf("the store is told of %d waiting units, of which %d are one request's; want 50 and 50", r.Waiting, r.Largest)
	}
	served := b.Apply(now+2_000, lease.Grant{Number: r.Number, Tokens: 40, TTL: 10_000_000, DenyFor: 1_000_000})
	if len(served) != 1 || served[0].Verdict().Outcome != Denied {
		t.Fatalf("got %+v, want one request, denied", served)
	}
	if due := b.Due(now + 2_000); due > now+earlyEvery {
		t.Errorf("the 40 units that served nobody go back in %d us, want %d", due-now, earlyEvery)
	}
	if again := b.Renew(now+earlyEvery, false); again.Held != 40 {
		t.Errorf("got %d units held, want 40", again.Held)
	}
}

// More may be waited for than any bucket has: the store is asked for no more than that, which it would not take.
func TestMoreIsWaitedForThanThereIs(t *testing.T) {
	const now = 1_000_000
	b := Of(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: limit.MaxUnits, Per: time.Hour}, Burst: limit.MaxUnits})
	for i := range 3 {
		b.Enqueue(&Waiter{Units: 600_000_000, Reserves: i > 0})
	}
	r := b.Renew(now, false)
	r.Key, r.Holder, r.Spec = "l", "a", lease.Spec{Algorithm: limit.TokenBucket, Units: limit.MaxUnits, Period: 3600_000_000, Burst: limit.MaxUnits}
	if err := r.Check(); err != nil || r.Waiting != limit.MaxUnits || r.Largest != 600_000_000 || r.Reserved != limit.MaxUnits {
		t.Errorf("got %d waiting, the largest of %d, %d of them to be reserved, and %v; want %d, 600000000, as many, and no fault", r.Waiting, r.Largest, r.Reserved, err, limit.MaxUnits)
	}
}

// What may be borrowed is part of the most that a request can have.
func TestLargerThanTheBucketButForWhatIsBorrowed(t *testing.T) {
	const now = 1_000_000
	b := Of(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10, Per: time.Second}, Burst: 100, Borrow: 20})
	if got := ask(b, now, 120, false); got != Wait {
		t.Errorf("120 of 100 and 20 borrowed: got %v, want Wait", got)
	}
	if got := ask(b, now, 121, false); got != Denied {
		t.Errorf("121 of 100 and 20 borrowed: got %v, want Denied", got)
	}
}

// A denial of several units says when the whole bucket may have them, not when it makes sense to ask for fewer.
func TestRetryAfterOfSeveralUnits(t *testing.T) {
	const now = 1_000_000
	for _, c := range []struct {
		name       string
		limit      limit.Limit
		validUntil int64
		want       int64
	}{
		{"of 100 refilled ten a second 20 are left", limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10, Per: time.Second}, Burst: 100}, 0, 3_000_000},
		{"what may be borrowed is there", limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10, Per: time.Second}, Burst: 100, Borrow: 10}, 0, 2_000_000},
		{"a window has no more before its end", limit.Limit{Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: time.Minute}}, 60_000_000, 40_000_000},
		{"of a log 80 leave within 40 s, and perhaps none before", limit.Limit{Algorithm: limit.SlidingWindowLog, Rate: limit.Rate{Units: 100, Per: time.Minute}}, 0, 40_000_000},
	} {
		b := Of(&c.limit)
		if ask(b, now, 50, false) != Wait {
			t.Fatalf("%s: the request does not wait", c.name)
		}
		b.Enqueue(&Waiter{Units: 50})
		served := b.Apply(now, lease.Grant{
			Number: b.Renew(now, false).Number, TTL: 10_000_000, DenyFor: lease.TooLarge, Remaining: 20, Reset: 40_000_000, ValidUntil: c.validUntil,
		})
		if len(served) != 1 || served[0].Verdict() != (Verdict{Outcome: Denied, RetryAfter: c.want}) {
			t.Errorf("%s: got %+v, want 50 denied for %d us", c.name, served, c.want)
		}
		if got := b.RetryAfter(now, 200, false); got != 0 {
			t.Errorf("%s: 200 are denied for %d us, want 0: there are never as many", c.name, got)
		}
	}
}

// What the store says of a request that is larger than all there is says nothing of a smaller one that came after the question.
func TestASmallerRequestIsNotDeniedForALargerOne(t *testing.T) {
	b, now := Of(&limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1, Per: time.Hour}, Burst: 100}), int64(1_000_000)
	if ask(b, now, 50, false) != Wait {
		t.Fatal("a cold bucket does not have its request wait")
	}
	large, small := &Waiter{Units: 50}, &Waiter{Units: 1}
	b.Enqueue(large)
	number := b.Renew(now, false).Number
	b.Enqueue(small)
	served := b.Apply(now, lease.Grant{Number: number, TTL: 10_000_000, DenyFor: lease.TooLarge, Remaining: 20})
	if len(served) != 1 || served[0] != large || large.Verdict().Outcome != Denied {
		t.Errorf("got %v, want the larger request alone denied", served)
	}
	if r := b.Renew(now, false); r.Waiting != 1 || r.Largest != 1 {
		t.Errorf("the next renewal asks for %d units, at most %d of a request; want 1 and 1", r.Waiting, r.Largest)
	}
	b.Fits()
	if got := ask(b, now, 50, false); got != Wait {
		t.Errorf("a large request once units came back: got %v, want Wait", got)
	}
}
