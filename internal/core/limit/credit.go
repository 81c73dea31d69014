package limit

import "math"

// Credit is the units of a bucket that each agent may admit before its first lease, if there are no more agents than so
// many.
type Credit struct {
	Units  uint8
	Agents int64
}

const (
	// mostTouched is the most units by TouchAdmit. Otherwise it is a tenth of the capacity, at least 1. Each agent may
	// add as many to the limit.
	mostTouched = 8
	// leastCredit is the smallest burst of which TouchCredit gives any.
	leastCredit = 20
	// paidIn is the seconds in which the limit has to gain the credit of all agents. A bucket in debt keeps back an
	// eighth of its rate, so it is out of that debt within a minute. No agent has credit again before that.
	paidIn = 7
)

// Credit returns the limit's credit. By TouchCredit all of it together is at most three sixteenths of epsilon, for a
// second's window: docs/error-bound.md sets those aside.
func (h *Held) Credit() Credit {
	l := &h.Rule.Limit
	switch {
	case l.FirstTouch == TouchAdmit && !l.CountsOnly():
		return Credit{uint8(max(min(h.Capacity()/10, mostTouched), 1)), math.MaxInt64}
	case l.FirstTouch == TouchAsk, l.Algorithm != TokenBucket, l.Enforcement != Hard, l.Lockout > 0,
		h.Burst < leastCredit, h.Rate.Units == 0, h.Rate.Per <= 0:
		return Credit{}
	}
	rate := float64(h.Rate.Units) / h.Rate.Per.Seconds()
	return Credit{1, int64(min(float64(l.EpsilonPPM)/Micro*3/16*(rate+float64(h.Burst)), paidIn*rate))}
}

// Of is the units of one of so many agents; 0 for not known.
func (c Credit) Of(agents int64) uint8 {
	if c.Agents == math.MaxInt64 || 0 < agents && agents <= c.Agents {
		return c.Units
	}
	return 0
}

// Capacity returns the most units that a bucket of the limit holds, which a new one has; 0 where nothing says so.
func (h *Held) Capacity() int64 {
	switch h.Rule.Limit.Algorithm {
	case FixedWindow, SlidingWindow, SlidingWindowLog:
		return h.Rate.Units
	case Concurrency:
		return h.Rule.Limit.Slots
	default:
		return h.Burst
	}
}
