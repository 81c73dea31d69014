package leasetest

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// newcomers checks that the first agent to ask does not get all of a slow bucket for hours. Agents that ask
// later find something. One that finds nothing asks again soon, while some tokens may come back.
func newcomers(t *testing.T, s lease.Store) {
	for _, algorithm := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow} {
		const now = int64(1_760_000_000_000_000)
		spec := lease.Spec{Algorithm: algorithm, Units: 100, Period: time.Hour.Microseconds(), Burst: 100}
		if algorithm == limit.SlidingWindow {
			spec.Burst = 0
			spec.WindowStart = now - now%spec.Period
			spec.WindowEnd = spec.WindowStart + spec.Period
			spec.NextWindowEnd = spec.WindowEnd + spec.Period
		}
		var admitted, out int64
		for i, holder := range []string{"first", "second", "third", "fourth"} {
			r := lease.Renewal{
				Key: "newcomers" + algorithm.String(), Spec: spec, Holder: holder, Now: now + int64(i)*1_000,
				Number: 1, Began: 1, Waiting: 1, Largest: 1,
			}
			a := s.Renew(t.Context(), []lease.Renewal{r})[0]
			if a.Err != nil || a.Grant.Tokens < 1 {
				t.Fatalf("%v: the %s to ask gets %d tokens of 100 an hour (%v), want one at least", algorithm, holder, a.Grant.Tokens, a.Err)
			}
			if i == 0 && a.Grant.Tokens > 50 {
				t.Errorf("%v: the first to ask gets %d of 100, and others want some", algorithm, a.Grant.Tokens)
			}
			admitted++
			out += a.Grant.Tokens
		}
		if out > 100 {
			t.Errorf("%v: %d of 100 are out", algorithm, out)
		}
	}
}
