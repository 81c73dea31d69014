package sim

import (
	"math"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// ideal is one central limiter that every request asks without delay, which leasing is compared with. Each is written
// as in a textbook, and shares no line with the product.
type ideal interface {
	// take reports whether n units are admitted at now, in Unix microseconds.
	take(now, n int64) bool
}

// queueing is an ideal limiter in which requests wait their turn.
type queueing interface {
	// begins returns when a request of one unit that comes at now is let through, and false
	// where the queue is full. It keeps its slot, if it has one, for lasts.
	begins(now, lasts int64) (at int64, ok bool)
}

// newIdeal returns an ideal, or one that is queueing, for a queue on each of so many agents.
func newIdeal(l *limit.Limit, agents int, now int64) any {
	places := l.Queue * int64(agents)
	if l.Slots > 0 {
		return &slots{free: make([]int64, l.Slots), places: places}
	}
	perSecond := float64(l.Rate.Units) / l.Rate.Per.Seconds()
	switch l.Algorithm {
	case limit.FixedWindow:
		return &fixedWindow{rate: l.Rate}
	case limit.SlidingWindow:
		return &slidingWindow{rate: l.Rate}
	case limit.SlidingWindowLog:
		return &slidingLog{units: l.Rate.Units, period: l.Rate.Per.Microseconds()}
	case limit.LeakyBucket:
		if places > 0 {
			return &pacedQueue{gap: 1e6 / perSecond, places: places}
		}
		return &leakyBucket{gap: 1e6 / perSecond, burst: float64(max(l.Burst, 1))}
	default:
		return &tokenBucket{level: float64(l.Burst), burst: float64(l.Burst), perSecond: perSecond, last: now}
	}
}

// tokenBucket fills at a rate up to its burst.
type tokenBucket struct {
	level, burst, perSecond float64
	last                    int64
}

func (b *tokenBucket) take(now, n int64) bool {
	b.level = math.Min(b.burst, b.level+float64(now-b.last)*b.perSecond/1e6)
	b.last = now
	if b.level < float64(n) {
		return false
	}
	b.level -= float64(n)
	return true
}

// leakyBucket knows when the next unit would be due if units were evenly spaced. It tolerates units that come less than
// a burst early.
type leakyBucket struct{ gap, burst, due float64 }

func (b *leakyBucket) take(now, n int64) bool {
	due := math.Max(b.due, float64(now))
	if due+float64(n)*b.gap-float64(now) > b.burst*b.gap+1e-6 {
		return false
	}
	b.due = due + float64(n)*b.gap
	return true
}

// pacedQueue lets one request out each gap, first come first served.
type pacedQueue struct {
	gap, due float64
	places   int64
}

func (q *pacedQueue) begins(now, _ int64) (int64, bool) {
	at := math.Max(q.due, float64(now))
	if at-float64(now) > float64(q.places)*q.gap+1e-6 {
		return 0, false
	}
	q.due = at + q.gap
	return int64(math.Ceil(at)), true
}

// slots is one counter of requests in flight, with a queue before it, first come first served.
type slots struct {
	free    []int64 // when each slot is free
	places  int64
	waiting []int64 // when each of those who wait begins, the earliest first
}

func (s *slots) begins(now, lasts int64) (int64, bool) {
	first := 0 // the slot that is free the earliest
	for i, at := range s.free {
		if at < s.free[first] {
			first = i
		}
	}
	for len(s.waiting) > 0 && s.waiting[0] <= now {
		s.waiting = s.waiting[1:]
	}
	at := max(s.free[first], now)
	if at > now {
		if int64(len(s.waiting)) >= s.places {
			return 0, false
		}
		s.waiting = append(s.waiting, at)
	}
	s.free[first] = at + lasts
	return at, true
}

// fixedWindow counts from zero in each window.
type fixedWindow struct {
	rate limit.Rate
	end  int64
	left int64
}

func (f *fixedWindow) take(now, n int64) bool {
	if now >= f.end {
		_, f.end = windowAt(f.rate, now)
		f.left = f.rate.Units
	}
	if n > f.left {
		return false
	}
	f.left -= n
	return true
}

// slidingWindow counts in windows. It weighs the one before by the part of it that is still within one window's length.
type slidingWindow struct {
	rate              limit.Rate
	begin, end        int64
	previous, current int64
}

func (s *slidingWindow) take(now, n int64) bool {
	if now >= s.end {
		begin, end := windowAt(s.rate, now)
		if s.previous = s.current; begin != s.end {
			s.previous = 0
		}
		s.begin, s.end, s.current = begin, end, 0
	}
	gone := float64(now-s.begin) / float64(s.end-s.begin)
	if float64(s.current+n)+float64(s.previous)*(1-gone) > float64(s.rate.Units) {
		return false
	}
	s.current += n
	return true
}

// slidingLog keeps the time of every unit of the last period.
type slidingLog struct {
	units, period int64
	times         []int64
}

func (s *slidingLog) take(now, n int64) bool {
	for len(s.times) > 0 && s.times[0] <= now-s.period {
		s.times = s.times[1:]
	}
	if int64(len(s.times))+n > s.units {
		return false
	}
	for range n {
		s.times = append(s.times, now)
	}
	return true
}

// windowAt returns the window that now is in, in Unix microseconds.
func windowAt(r limit.Rate, now int64) (begin, end int64) {
	if r.Calendar == limit.Month {
		t := time.UnixMicro(now).UTC()
		return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC).UnixMicro(),
			time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	}
	per := r.Per.Microseconds()
	return now - now%per, now - now%per + per
}
