package client

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Gateways that begin together do not go on reporting together: all give a sign of life at once, and their next reports come in the second half of the
// interval, wherever in it.
func TestAFleetThatBeginsReportsApart(t *testing.T) {
	const fleet, interval = 40, 30 * time.Second
	bubble(t, plans(1, limit.Limit{Name: "requests", Rate: perSecond(1), Burst: 25, Meter: "requests"}), func(t *testing.T, s *fake) {
		gateways, next := make([]*Client, fleet), make([]time.Duration, fleet)
		for i := range gateways {
			gateways[i] = dial(t, s, WithAgent(fmt.Sprint("gw-", i)), WithReportInterval(interval))
			time.Sleep(time.Millisecond) // each is a life of its own to the ledger: they begin at different times
		}
		began := time.Now()
		for slices.Contains(next, 0) && time.Since(began) < 2*interval {
			time.Sleep(time.Second)
			for i, c := range gateways {
				switch calls := c.Stats().SettleCalls; {
				case calls == 0 && time.Since(began) > 4*time.Second:
					t.Fatalf("gateway %d gave no sign of life in %v", i, time.Since(began))
				case calls > 1 && next[i] == 0:
					next[i] = time.Since(began)
				}
			}
		}
		first, last := slices.Min(next), slices.Max(next)
		if first < interval/2 || last > interval+4*time.Second || last-first < interval/3 {
			t.Errorf("second reports come %v to %v after the begin, want them spread over 15s to 34s", first, last)
		}
		for _, c := range gateways {
			shut(t, c)
		}
	})
}
