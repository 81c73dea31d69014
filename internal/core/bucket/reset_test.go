package bucket

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// A bucket is not said to be full later than the store says, at whatever microsecond it answers.
func TestResetIsNoLaterThanSaid(t *testing.T) {
	for _, now := range []int64{1_000_000, 1_000_001, 1_000_723, 1_000_999} {
		of := Of(&limit.Limit{Name: "l", Algorithm: limit.SlidingWindowLog, Rate: limit.Rate{Units: 6, Per: 60_000_000_000}, Burst: 6})
		of.Apply(now, lease.Grant{Number: of.Renew(now-50, false).Number, Tokens: 1, TTL: 10_000_000, Reset: 60_000_000})
		if got := of.State(now).ResetIn; got > 60_000_000 || got < 59_999_000 {
			t.Errorf("answered at %d: full in %d, the store said 60000000", now, got)
		}
	}
}
