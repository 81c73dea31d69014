package bucket

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// A log admits requests however long a round trip to its store takes, up to half a second.
func TestALogFarAway(t *testing.T) {
	const second = 1_000_000
	for _, c := range []struct {
		period time.Duration
		way    int64
	}{{time.Second, 10_000}, {time.Second, 60_000}, {100 * time.Millisecond, 5_000}, {time.Second, 110_000}, {time.Second, 240_000}} {
		w := newWorld(limit.Limit{
			Name: "l", Algorithm: limit.SlidingWindowLog, Rate: limit.Rate{Units: 100, Per: c.period}, Enforcement: limit.Strict,
		}, 1)
		w.way = c.way
		admitted := 0
		for i := range int64(40) {
			w.after(i*second/2, func() {
				w.nodes[0].ask(false, func(ok bool) {
					if ok {
						admitted++
					}
				})
			})
		}
		if w.runTo(22 * second); admitted != 40 {
			t.Errorf("%d ms away, 100 in %v: %d of 40 admitted", c.way/1000, c.period, admitted)
		}
	}
}
