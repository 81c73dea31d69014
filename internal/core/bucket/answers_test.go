package bucket

import (
	"fmt"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// verdict asks for units at once, lets the answer come, and returns it with when it came.
func (n *node) verdict(units int64) (v Verdict, at int64) {
	w := n.w
	if n.bucket.Take(units) {
		return Verdict{Outcome: Admitted}, w.now
	}
	if v = n.bucket.Ask(w.now, units, false, false); v.Outcome != Wait {
		n.look()
		return v, w.now
	}
	v, at = Verdict{}, 0
	n.bucket.Enqueue(&Waiter{Units: units, Done: func(got Verdict) { v, at = got, w.now }})
	n.look()
	for range 10_000 {
		if v.Outcome != 0 {
			return v, at
		}
		w.runTo(w.now + 100)
	}
	panic("never decided")
}

// slack is what an answer may be off by: its way here, and the grain of what is said.
const slack = 100_000

var answered = []limit.Limit{
	{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1, Per: 24 * time.Hour}, Burst: 1},
	{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 5, Per: time.Minute}, Burst: 5},
	{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10, Per: time.Hour}, Burst: 40},
	{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 7, Per: 10 * time.Second}, Burst: 100},
	{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1000, Per: time.Hour}, Burst: 2000},
	{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100, Per: time.Second}, Burst: 1000},
	{Algorithm: limit.LeakyBucket, Rate: limit.Rate{Units: 3, Per: time.Minute}, Burst: 3},
	{Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 1, Per: 24 * time.Hour}},
	{Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 50, Per: 3 * time.Hour}},
	{Algorithm: limit.SlidingWindow, Rate: limit.Rate{Units: 5, Per: time.Minute}},
	{Algorithm: limit.SlidingWindow, Rate: limit.Rate{Units: 2, Per: 12 * time.Hour}},
	{Algorithm: limit.SlidingWindowLog, Rate: limit.Rate{Units: 1, Per: 24 * time.Hour}},
	{Algorithm: limit.SlidingWindowLog, Rate: limit.Rate{Units: 5, Per: time.Minute}},
}

// A denial says when the next unit is there, each time it is asked, and one that comes back then is admitted.
func TestADenialSaysWhenTheNextUnitIsThere(t *testing.T) {
	for _, l := range answered {
		t.Run(fmt.Sprint(l.Algorithm, " ", l.Rate, " ", l.Burst), func(t *testing.T) {
			l.Name = "l"
			w := newWorld(l, 1)
			n := w.nodes[0]
			w.runTo(w.now + 100_000_000)
			for round := range 3 {
				var v Verdict
				var at int64
				for v, at = n.verdict(1); v.Outcome == Admitted; v, at = n.verdict(1) {
					w.runTo(w.now + 1_000)
				}
				says := at + v.RetryAfter
				for _, part := range []int64{0, 1, 10, 30, 60, 90} {
					ask := w.now + (says-w.now)*part/100
					w.runTo(ask)
					v, at = n.verdict(1)
					if v.Outcome == Admitted {
						break // it came sooner: nobody is the worse for it
					}
					if again := at + v.RetryAfter; again < says-slack || again > says+slack {
						t.Errorf("round %d: at %s it said %s, and at %d %% of the time %s", round, inTime(w.now), inTime(says), part, inTime(again))
					}
				}
				if v.Outcome == Admitted {
					continue
				}
				w.runTo(says + slack)
				if v, _ = n.verdict(1); v.Outcome != Admitted {
					t.Errorf("round %d: came at %s as it was told, and is to come again %s later", round, inTime(says), time.Duration(v.RetryAfter)*time.Microsecond)
				}
			}
		})
	}
}

func inTime(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// Several agents that spend all there is tell their callers of the next unit too, and not of when they ask again.
func TestDenialsOfSeveralAgents(t *testing.T) {
	for _, l := range answered {
		if l.Rate.Per < time.Minute {
			continue
		}
		t.Run(fmt.Sprint(l.Algorithm, " ", l.Rate, " ", l.Burst), func(t *testing.T) {
			l.Name = "l"
			w := newWorld(l, 3)
			admitted, last := int64(0), w.now
			for quiet := 0; quiet < 20; quiet++ {
				for _, n := range w.nodes {
					for {
						v, at := n.verdict(1)
						if v.Outcome != Admitted {
							break
						}
						admitted, last, quiet = admitted+1, at, 0
					}
				}
				w.runTo(w.now + 50_000)
			}
			next := last
			switch units, per := l.Rate.Units, l.Rate.Per.Microseconds(); l.Algorithm {
			case limit.TokenBucket, limit.LeakyBucket:
				next = 1_000_000 + (admitted+1-l.Burst)*per/units // at the earliest: it began full
			case limit.FixedWindow:
				next = (worldEpoch+w.now)/per*per + per - worldEpoch
			case limit.SlidingWindowLog:
				next = last // of five within a second
				if units == 1 {
					next += per
				}
			}
			for range 20 {
				for i, n := range w.nodes {
					v, at := n.verdict(1)
					if v.Outcome == Denied && at+v.RetryAfter < next-slack {
						t.Errorf("agent %d at %s: come again in %s; the next unit is there in %s", i, inTime(at), inTime(v.RetryAfter), inTime(next-at))
					}
				}
				w.runTo(w.now + 313_000)
			}
		})
	}
}

// What is left never goes up while all that happens is spending, and the time until all is back never down.
func TestWhatIsLeftAndResetAgree(t *testing.T) {
	for _, l := range answered {
		t.Run(fmt.Sprint(l.Algorithm, " ", l.Rate, " ", l.Burst), func(t *testing.T) {
			l.Name = "l"
			w := newWorld(l, 1)
			n := w.nodes[0]
			w.runTo(w.now + 100_000_000)
			left, full := int64(1<<40), int64(0)
			for {
				v, _ := n.verdict(1)
				s := n.bucket.State(w.now)
				if s.Remaining > left {
					t.Errorf("%d are left after %d", s.Remaining, left)
				}
				if s.ResetIn < full-slack {
					t.Errorf("with %d left all is back in %s, after %s with %d", s.Remaining, inTime(s.ResetIn), inTime(full), left)
				}
				left, full = s.Remaining, s.ResetIn
				if v.Outcome == Denied {
					if v.RetryAfter > full+slack {
						t.Errorf("the next unit is there in %s, and all in %s", inTime(v.RetryAfter), inTime(full))
					}
					return
				}
			}
		})
	}
}
