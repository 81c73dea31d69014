package sim

import (
	"math"
	"time"

	"github.com/f4ee788f/quota/internal/limit"
)

// ideal is one central limiter that every request asks without delay: what leasing
// is compared with. Each is written down as a textbook has it, and shares no line
// with the product.
type ideal interface {
	// take reports whether n units are admitted at now, in Unix microseconds.
	take(now, n int64) bool
}

func newIdeal(l *limit.Limit, now int64) ideal {
	perSecond := float64(l.Rate.Units) / l.Rate.Per.Seconds()
	switch l.Algorithm {
	case limit.FixedWindow:
		return &fixedWindow{rate: l.Rate}
	case limit.SlidingWindow:
		return &slidingWindow{rate: l.Rate}
	case limit.SlidingWindowLog:
		return &slidingLog{units: l.Rate.Units, period: l.Rate.Per.Microseconds()}
	case limit.LeakyBucket:
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

// leakyBucket knows when the next unit would be due were they evenly spaced, and
// tolerates what comes less than a burst early.
type leakyBucket struct{ gap, burst, due float64 }

func (b *leakyBucket) take(now, n int64) bool {
	due := math.Max(b.due, float64(now))
	if due+float64(n)*b.gap-float64(now) > b.burst*b.gap+1e-6 {
		return false
	}
	b.due = due + float64(n)*b.gap
	return true
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

// slidingWindow counts in windows and weighs the one before by what of it is still
// within one window's length.
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
