package explore

import (
	"fmt"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// judge says what of the bound does not hold, "" for nothing. It knows the limit, what was admitted and when, and what the
// network and the store did. docs/error-bound.md says what it demands:
//
//   - of what refills: in every window W ≥ 1 s, admitted ≤ (1 + ε) × (R × W + B);
//   - of aligned windows: at most (1 + ε) × N in each;
//   - of a log: at most N in every period, less the way of an answer;
//   - of slots: no more in use than there are.
//
// A request that waits is counted by the store when it answers, and admitted when the answer arrives. So a window is as much
// longer as the slowest answer took.
func (w *world) judge() string {
	l := &w.c.limit
	switch l.Algorithm {
	case limit.FixedWindow:
		return w.judgeWindows()
	case limit.SlidingWindow:
		return w.judgeSliding()
	case limit.SlidingWindowLog:
		return w.judgeLog()
	case limit.Concurrency:
		return w.judgeSlots()
	}
	return w.judgeFlow()
}

func (w *world) more() float64 { return 1 + float64(w.c.limit.EpsilonPPM)/limit.Micro }

// seconds is a time in seconds.
func seconds(t int64) float64 { return float64(t) / second }

// lapses is how often the store forgot between two times, or less than a term before.
func (w *world) lapses(from, to int64) (n int64) {
	for _, at := range w.forgets {
		if at <= to && from <= at+10*second {
			n++
		}
	}
	return n
}

func (w *world) judgeFlow() string {
	l := &w.c.limit
	rate := float64(l.Rate.Units) / l.Rate.Per.Seconds()
	for i := range w.hist {
		sum := int64(0)
		for j := i; j < len(w.hist); j++ {
			sum += w.hist[j].units
			from, to := w.hist[i].at, w.hist[j].at
			length := seconds(max(to-from, second) + 2*w.slowest)
			bound := w.more() * (rate*length + float64(l.Burst))
			bound += float64(w.lapses(from, to)) * w.more() * float64(l.Burst)
			if l.EpsilonPPM > 0 && w.anyAlone(i, j) {
				bound += float64(len(w.agents)) // a token each for agents without a fallback
			}
			if l.Algorithm == limit.LeakyBucket {
				bound += float64(l.Burst) + float64(len(w.agents)) // each has a token apart, and may find room for its stock once more
			}
			if float64(sum) > bound {
				return fmt.Sprintf("%d were admitted from %.3f to %.3f s, the most is %.2f", sum, seconds(from-begin), seconds(to-begin), bound)
			}
		}
	}
	return ""
}

// anyAlone reports whether any of these was admitted out of contact.
func (w *world) anyAlone(from, to int) bool {
	for _, a := range w.hist[from : to+1] {
		if a.alone {
			return true
		}
	}
	return false
}

// judgeWindows counts by the store's clock. Agents out of contact go on with their shares of a window. If others are in
// contact, these are on top of it, unless the limit is strict. If servers notice before anybody renews that the store
// forgot, it lends no more than epsilon for ten seconds.
func (w *world) judgeWindows() string {
	l := &w.c.limit
	length := l.Rate.Per.Microseconds()
	type sum struct{ all, alone int64 }
	sums := map[int64]sum{}
	for _, a := range w.hist {
		window := a.at / length
		s := sums[window]
		s.all += a.units
		if a.alone {
			s.alone += a.units
		}
		sums[window] = s
		bound := w.more() * float64(l.Rate.Units)
		if s.alone < s.all && l.EpsilonPPM > 0 {
			bound += float64(min(s.alone, l.Rate.Units))
		}
		for _, at := range w.forgets {
			switch {
			case at/length != window:
			case !w.hasty && a.at < at+10*second:
				bound += (w.more() - 1) * float64(l.Rate.Units)
			default:
				bound += float64(l.Rate.Units)
			}
		}
		if float64(s.all) > bound {
			return fmt.Sprintf("%d were admitted in the window from %.3f s on, the most is %.2f", s.all, seconds(window*length-begin), bound)
		}
	}
	return ""
}

func (w *world) judgeSliding() string {
	l := &w.c.limit
	length := l.Rate.Per.Microseconds()
	sums := map[int64]int64{}
	for _, a := range w.hist {
		window := a.at / length
		sums[window] += a.units
		over := min(float64(a.at%length+2*w.slowest)/float64(length), 1)
		weighted := float64(sums[window]) + float64(sums[window-1])*(1-over)
		bound := w.more() * float64(l.Rate.Units)
		if w.lapses(a.at-2*length, a.at) > 0 {
			bound += float64(l.Rate.Units)
		}
		if weighted > bound+1e-6 {
			return fmt.Sprintf("%.2f count at %.3f s (%d in its window, %d in the one before), the most is %.2f",
				weighted, seconds(a.at-begin), sums[window], sums[window-1], bound)
		}
	}
	return ""
}

func (w *world) judgeLog() string {
	l := &w.c.limit
	for i := range w.hist {
		sum := int64(0)
		for j := i; j < len(w.hist) && w.hist[j].at < w.hist[i].at+l.Rate.Per.Microseconds()-w.slowest; j++ {
			sum += w.hist[j].units
			bound := l.Rate.Units * (1 + w.lapses(w.hist[i].at, w.hist[j].at))
			if sum > bound {
				return fmt.Sprintf("%d were admitted from %.3f to %.3f s, the most is %d", sum, seconds(w.hist[i].at-begin), seconds(w.hist[j].at-begin), bound)
			}
		}
	}
	return ""
}

// judgeSlots leaves out slots that an agent has whose renewals did not come in time.
func (w *world) judgeSlots() string {
	inUse := int64(0)
	for _, a := range w.hist {
		if a.ended == 0 && !a.lapsed && !w.agents[a.agent].silent() {
			inUse += a.units
		}
	}
	if bound := w.c.limit.Slots * (1 + w.lapses(w.now, w.now)); inUse > bound {
		return fmt.Sprintf("%d slots are in use at %.3f s, the most is %d", inUse, seconds(w.now-begin), bound)
	}
	return ""
}

// heal mends everything and waits until the bucket has its capacity again. Then it says who is denied for ever: an agent that
// asks for one unit now and then, and has none admitted until forgotten leases are over. Requests that have slots end first.
func (w *world) heal() string {
	w.tell("all is mended")
	for i, g := range w.agents {
		g.fate = fate{}
		if g.link != fine {
			mend(i).do(w)
		}
	}
	w.run(w.now + 2*second) // nobody waits any more
	for _, g := range w.agents {
		for g.slots > 0 {
			g.finish()
		}
	}
	w.run(w.now + max(15*second, 2*w.c.limit.Rate.Per.Microseconds()))
	for i, g := range w.agents {
		from, had := w.now, w.admitted()
		for w.admitted() == had {
			if w.now-from > 15*second {
				return fmt.Sprintf("agent %d is denied from %.3f to %.3f s, though all is well", i, seconds(from-begin), seconds(w.now-begin))
			}
			g.ask(1, 1)
			w.run(w.now + second/2)
		}
	}
	return ""
}

func (w *world) admitted() (units int64) {
	for _, a := range w.hist {
		units += a.units
	}
	return units
}
