package client

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// What found no room is told as of when the server hears of it: half of a round trip later, as long as those took of late.
func TestVoidTravels(t *testing.T) {
	const trip = 200 * time.Millisecond
	bubble(t, plans(1, limit.Limit{Name: "requests", Algorithm: limit.TokenBucket, By: []string{"tenant"}, Rate: perSecond(100), Burst: 100, EpsilonPPM: 50_000}), func(t *testing.T, s *fake) {
		s.delay, s.ttl, s.trickle = trip, 2*time.Second, 100*limit.Micro
		c := dial(t, s)
		for range 20 {
			c.Allow(t.Context(), tenant("a")) // and at once finds room no more
			time.Sleep(time.Second)
		}
		shut(t, c)
		if len(s.voids) < 10 {
			t.Errorf("%d renewals told of what found no room, want one each two seconds", len(s.voids))
		}
		for i, ago := range s.voids {
			if least := trip.Microseconds() / 2 * int64(min(2*max(i-1, 0), 8)) / 10; ago < least {
				t.Errorf("renewal %d: told is %d us ago, want at least %d", i, ago, least)
			}
		}
	})
}
