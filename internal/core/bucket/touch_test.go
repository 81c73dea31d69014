package bucket

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Units admitted on credit at the first touch are taken out of the bucket, whatever the algorithm.
func TestFirstTouchIsTakenOut(t *testing.T) {
	for name, a := range map[string]limit.Algorithm{
		"token_bucket": limit.TokenBucket, "fixed_window": limit.FixedWindow, "sliding_window_log": limit.SlidingWindowLog, "sliding_window": limit.SlidingWindow,
	} {
		t.Run(name, func(t *testing.T) {
			const agents = 5
			l := limit.Limit{Name: "l", Algorithm: a, Rate: limit.Rate{Units: 40, Per: time.Hour}, FirstTouch: limit.TouchAdmit}
			if a == limit.TokenBucket {
				l.Burst = 40
			}
			w := newWorld(l, agents)
			admitted, atOnce := 0, 0
			for i := range 200 {
				n := w.nodes[i%agents]
				at := int64(i) * 10
				if i >= 4*agents {
					at += 200_000 // by then all agents have told of theirs
				}
				w.after(at, func() {
					at := w.now
					n.ask(false, func(ok bool) {
						if ok {
							admitted++
							if w.now == at {
								atOnce++
							}
						}
					})
				})
			}
			w.runTo(20_000_000)
			if atOnce < 4*agents {
				t.Errorf("%d were admitted at once, want the first 4 on each of %d agents", atOnce, agents)
			}
			// The first agent to ask may get all that is left before the others tell of theirs.
			if most := 40 + 4*(agents-1); admitted < 40 || admitted > most {
				t.Errorf("%d of 40 were admitted, want %d at most", admitted, most)
			}
		})
	}
}
