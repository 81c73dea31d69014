package relay

import (
	"testing"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/leasetest"
)

// The store hears of a lower limit at once, though it came while a renewal by the old one was on its way.
func TestLimitChangesInFlight(t *testing.T) {
	now := int64(1_760_000_400_000_000)
	b := NewBucket("b", "relay", 1)
	old, lower := leasetest.Bucket(10_000, 10_000), leasetest.Bucket(100, 100)
	ask := func(who string, n int64, spec lease.Spec) *lease.Renewal {
		return &lease.Renewal{Key: "b", Spec: spec, Holder: who, Number: n, Began: 1, Waiting: 1}
	}
	b.Renew(now, ask("a", 1, old), false)
	b.Ask(now)
	now += 1000
	if _, ok := b.Renew(now, ask("b", 1, lower), false); ok {
		t.Fatal("did not wait")
	}
	now += 1000
	b.Answered(now, lease.Answer{Grant: lease.Grant{Number: 1, Tokens: 500, Trickle: 1_000_000_000, Pile: 50, TTL: 10_000_000, Generation: 1}})
	b.Renew(now, ask("a", 1, old), true)
	b.Renew(now, ask("b", 1, lower), true)
	b.Settled()
	for at := now; ; at += 10_000 {
		b.Renew(at, ask("b", at, lower), false)
		if b.Due(at) {
			if at-now > 50_000 { // not when its demand is seen to have changed, nor at half of the term
				t.Errorf("the store hears of the lower limit after %d ms", (at-now)/1000)
			}
			return
		}
	}
}
