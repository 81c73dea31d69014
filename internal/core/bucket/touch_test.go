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

// By default a bucket admits one unit on credit, if there are no more agents than its limit has credit for. The next
// waits. Its renewal goes with others that are due.
func TestCreditOfOneUnit(t *testing.T) {
	const now = 1_000_000
	l := limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100, Per: time.Second}, Burst: 1000, EpsilonPPM: limit.DefaultEpsilonPPM}
	for agents, want := range map[int64]Outcome{0: Wait, 1: Admitted, 10: Admitted, 11: Wait} {
		b := new(Bucket)
		b.Init(TermsAlone(&l), nil, false, agents, now)
		if got := ask(b, now, 1, false); got != want {
			t.Errorf("of %d agents: got %v, want %v", agents, got, want)
		}
		if got := ask(b, now, 1, false); got != Wait {
			t.Errorf("the second unit, of %d agents: got %v, want Wait", agents, got)
		}
		if got := b.Soon(now); got != (want == Admitted) {
			t.Errorf("of %d agents: the renewal goes with others: %v", agents, got)
		}
	}
	b, strict := new(Bucket), l
	b.Init(TermsAlone(&l), nil, false, 1, now)
	strict.Enforcement, strict.EpsilonPPM = limit.Strict, 0
	b.Follow(TermsAlone(&strict))
	if got := ask(b, now, 1, false); got != Wait {
		t.Errorf("of a limit that became strict: got %v, want Wait", got)
	}
}
