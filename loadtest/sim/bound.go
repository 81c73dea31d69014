package sim

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// bound holds every window of what one bucket admits against the bound of
// docs/error-bound.md, exactly: it looks at each admission as a window's end.
type bound struct {
	sc    *Scenario
	epoch int64
	spans []span
	past  []admission // of the longest span

	// Of windowed limits: what the window now has admitted, and the one before.
	begin, end        int64
	previous, current int64

	inFlight int64 // of a limit of slots

	over            int
	most, mostTenth float64
}

type admission struct{ at, units int64 }

// span is one length of window, as it slides along.
type span struct {
	length int64
	allows float64
	first  int // of past that is inside
	sum    int64
	tenth  bool // a tenth of a second: printed, and held to only by strict limits
}

func newBound(sc *Scenario, epoch int64) *bound {
	b := &bound{sc: sc, epoch: epoch}
	l := &sc.Limit
	allowed := 1 + float64(l.EpsilonPPM)/1e6
	switch l.Algorithm {
	case limit.FixedWindow, limit.SlidingWindow, limit.Concurrency:
	case limit.SlidingWindowLog:
		// Exactly, as the store counts: agents hear of it a part of a round trip later, one sooner than another.
		b.spans = []span{{length: l.Rate.Per.Microseconds() - sc.Faults.roundTrip(), allows: float64(l.Rate.Units)}}
	default:
		for _, length := range []int64{second / 10, second, 2 * second, 10 * second, minute} {
			rate := float64(l.Rate.Units) / float64(l.Rate.Per.Microseconds())
			b.spans = append(b.spans, span{length: length, allows: allowed * (rate*float64(length) + float64(max(l.Burst, 1))), tenth: length < second})
		}
	}
	return b
}

// admit takes note of units admitted at now.
func (b *bound) admit(now, units int64) {
	if b.sc.Limit.Slots > 0 {
		b.occupy(units)
		return
	}
	if b.sc.Limit.Algorithm.Windowed() {
		b.window(now, units)
		return
	}
	b.past = append(b.past, admission{now, units})
	for i := range b.spans {
		s := &b.spans[i]
		s.sum += units
		for b.past[s.first].at <= now-s.length {
			s.sum -= b.past[s.first].units
			s.first++
		}
		part := float64(s.sum) / s.allows
		if s.tenth {
			b.mostTenth = math.Max(b.mostTenth, part)
			if b.sc.Limit.EpsilonPPM > 0 {
				continue
			}
		} else {
			b.most = math.Max(b.most, part)
		}
		if part > b.times(now-s.length, now) {
			b.over++
		}
	}
	b.trim()
}

// occupy holds what is in flight against the slots, which have no room for an error.
func (b *bound) occupy(units int64) {
	b.inFlight += units
	part := float64(b.inFlight) / float64(b.sc.Limit.Slots)
	b.most = math.Max(b.most, part)
	if part > 1 {
		b.over++
	}
}

func (b *bound) finish(units int64) { b.inFlight -= units }

// times is how many bounds a window may come to. It is two where the store has lost the bucket, until the leases it
// does not know have ended. It is more where part of the agents are cut off for longer than their shares are held:
// others get these too.
func (b *bound) times(from, to int64) float64 {
	for _, c := range b.sc.Faults.Cuts {
		if c.Agents == nil || to < c.From || from > c.To || c.To-c.From <= b.sc.Limit.FallbackHold.Microseconds() {
			continue
		}
		off := 0
		for a := range b.sc.Agents {
			if c.Agents(a) {
				off++
			}
		}
		return 1 + float64(off)/float64(b.sc.Agents)
	}
	for _, f := range b.sc.Faults.Forgets {
		if f.At <= to && from <= f.At+lease.LongTerm {
			return 2
		}
	}
	return 1
}

// trim drops what is in no window any more, once it is half of all.
func (b *bound) trim() {
	first := len(b.past)
	for i := range b.spans {
		first = min(first, b.spans[i].first)
	}
	if first < 4096 || first < len(b.past)/2 {
		return
	}
	b.past = b.past[:copy(b.past, b.past[first:])]
	for i := range b.spans {
		b.spans[i].first -= first
	}
}

// window holds aligned windows against their units; of a sliding window the part
// of the one before that still counts besides.
func (b *bound) window(now, units int64) {
	l := &b.sc.Limit
	at := b.epoch + now
	if at >= b.end {
		begin, end := windowAt(l.Rate, at)
		if b.previous = b.current; begin != b.end {
			b.previous = 0
		}
		b.begin, b.end, b.current = begin, end, 0
	}
	b.current += units
	sum := float64(b.current)
	if l.Algorithm == limit.SlidingWindow {
		sum += float64(b.previous) * float64(b.end-at) / float64(b.end-b.begin)
	}
	part := sum / ((1 + float64(l.EpsilonPPM)/1e6) * float64(l.Rate.Units))
	b.most = math.Max(b.most, part)
	if part > b.times(b.begin-b.epoch, now) {
		b.over++
	}
}
