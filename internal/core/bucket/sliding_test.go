package bucket

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// A strict sliding window never admits more than its units: the part of a token that each agent keeps at a renewal is
// out of the window.
func TestAStrictSlidingWindowIsRightToTheUnit(t *testing.T) {
	const units, length, agents, demand = 2_000, 10_000_000, 10, 60 // of each agent, a second
	w := newWorld(limit.Limit{
		Name: "l", Algorithm: limit.SlidingWindow, Rate: limit.Rate{Units: units, Per: length * time.Microsecond}, Enforcement: limit.Strict,
	}, agents)
	admitted, most := map[int64]int64{}, 0.0
	end := w.now + 4*length
	for _, n := range w.nodes {
		var arrive func()
		arrive = func() {
			n.ask(false, func(ok bool) {
				if at := worldEpoch + w.now; ok {
					window, over := at/length, float64(at%length)/length
					admitted[window]++
					most = max(most, float64(admitted[window])+float64(admitted[window-1])*(1-over))
				}
			})
			if w.now < end {
				w.after(int64(w.rng.ExpFloat64()*1e6/demand), arrive)
			}
		}
		w.after(w.rng.Int64N(1_000), arrive)
	}
	w.runTo(end)
	if most > units || most < units*95/100 {
		t.Errorf("at most %.1f units counted at a time, want %d, and no more", most, units)
	}
}
