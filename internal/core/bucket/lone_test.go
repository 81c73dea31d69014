package bucket

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// A bucket that gave its lease back goes on with its fallback when contact is lost: with a token at once, and then at that
// rate, for as long as the outage lasts. Where the store had given it up before, there is none. When the server is back the
// lease is over, and the bucket is renewed at once.
func TestAnIdleBucketLivesOnItsFallback(t *testing.T) {
	const given = 10_000_000
	idle := func() *Bucket {
		b := Of(&limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100, Per: time.Second}, Burst: 100})
		b.Apply(1_000_000, lease.Grant{Number: b.Renew(1_000_000, false).Number, Tokens: 10, TTL: 10_000_000, Fallback: 20 * limit.Micro})
		b.Apply(given, lease.Grant{Number: b.Renew(given, true).Number, Fallback: 10 * limit.Micro})
		return b
	}
	for _, c := range []struct {
		lost, after int64
		admits      int
	}{{20_000_000, 0, 1}, {20_000_000, 500_000, 6}, {20_000_000, 3_600_000_000, 10}, {given + lease.Remembered, 500_000, 0}} {
		b, now := idle(), c.lost+c.after
		b.Lose(c.lost)
		got := 0
		for ; got < 100 && ask(b, now, 1, true) == Admitted; got++ {
		}
		if got != c.admits {
			t.Errorf("lost at %d, %d us later: %d were admitted, want %d", c.lost, c.after, got, c.admits)
		}
		if got == 0 {
			continue
		}
		if s := b.State(now); !s.Live || s.Leased {
			t.Errorf("it goes on, and has no lease that lasts: %+v", s)
		}
		b.Tick(now+200_000, false)
		if due := b.Due(now + 200_000); b.State(now).Live || due > now+200_000 {
			t.Errorf("in contact again: live %v, due in %d us", b.State(now).Live, due-now-200_000)
		}
		if r := b.Renew(now+200_000, false); r.Admitted != int64(got) || r.ExpiresIn != 0 {
			t.Errorf("the store is told %+v, want %d admitted and no lease", r, got)
		}
	}
}

// A request without a unit waits for one that the fallback brings within a second, if few do.
func TestFewWaitForTheFallback(t *testing.T) {
	const now = 1_000_000
	b := Of(&limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100, Per: time.Second}, Burst: 100})
	b.Apply(now, lease.Grant{Number: b.Renew(now, false).Number, Trickle: limit.Micro, Pile: 1, TTL: 10_000_000, Fallback: 40 * limit.Micro})
	b.Lose(now)
	waits := 0
	for range 50 {
		if ask(b, now, 1, true) != Wait {
			continue
		}
		waits++
		b.Enqueue(&Waiter{Units: 1})
		b.Fail(now)
	}
	if waits != mostTurns {
		t.Errorf("%d wait, want %d", waits, mostTurns)
	}
	served, _ := b.Tick(now+500_000, true)
	if len(served) != 20 {
		t.Errorf("%d were served in half a second of 40/s, want 20", len(served))
	}
}
