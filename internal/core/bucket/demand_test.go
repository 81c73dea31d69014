package bucket

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// The store said to deny for half a second, before it knew of a demand of 1,000 a second. With a burst of a tenth of a
// second the holder says so after 25 ms; once, for by then the store knows.
func TestADemandThatRoseIsTold(t *testing.T) {
	const now, ms = 1_000_000, 1_000
	b := Of(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1_000, Per: 1_000_000_000}, Burst: 100})
	grant := lease.Grant{Trickle: 10 * limit.Micro, Pile: 1, TTL: 500 * ms, DenyFor: 500 * ms}
	answer := func(at int64) {
		r := b.Renew(at, false)
		grant.Number = r.Number
		b.Apply(at, grant)
	}
	demand := func(from, to int64) {
		for at := from; at < to; at += ms {
			if !b.Take(1) {
				b.Ask(at, 1, false, false)
			}
		}
	}
	due := func(at int64) bool {
		p := b.Plan(at)
		return p.Renew() <= at
	}
	answer(now)
	demand(now, now+25*ms)
	if due(now + 24*ms) {
		t.Error("24 ms after it was told to deny: got a renewal that is due, want none yet")
	}
	if !due(now + 25*ms) {
		t.Error("25 ms after it was told to deny, 25 units were asked for: got no renewal, want one")
	}
	answer(now + 25*ms)
	for at := int64(now + 26*ms); at <= now+100*ms; at += ms {
		demand(at-ms, at)
		if due(at) {
			t.Fatalf("%d ms after the store was told: got another renewal, want none of a demand that it knows", (at-now)/ms-25)
		}
	}
}
