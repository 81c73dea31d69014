package load

import (
	"context"
	"time"
)

// pace spreads a worker's part of the rate evenly over time. What a worker could not
// ask in time is asked later, up to a tenth of a second's worth: the load is open, but
// a stall is not answered with a flood.
type pace struct {
	rate  float64 // requests a second
	start time.Time
	done  float64 // requests handed out, or forgone
}

// newPace returns the pace of worker i of n, or nil for no pace at all.
func newPace(rate int64, i, n int, start time.Time) *pace {
	if rate == 0 {
		return nil
	}
	own := rate / int64(n)
	if int64(i) < rate%int64(n) {
		own++
	}
	return &pace{rate: float64(own), start: start}
}

// wait returns how many requests are due, after waiting until one is or ctx ends.
func (p *pace) wait(ctx context.Context) int {
	n := p.take(time.Since(p.start))
	if n > 0 {
		return n
	}
	nap := time.Hour
	if p.rate > 0 {
		nap = max(time.Duration((p.done+1)/p.rate*float64(time.Second))-time.Since(p.start), time.Millisecond)
	}
	t := time.NewTimer(nap)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return 0
	case <-t.C:
		return p.take(time.Since(p.start))
	}
}

// take returns how many requests are due, at most a turn.
func (p *pace) take(elapsed time.Duration) int {
	due := p.rate * elapsed.Seconds()
	p.done = max(p.done, float64(int64(due-p.rate/10)))
	n := min(int(due-p.done), turn)
	if n < 1 {
		return 0
	}
	p.done += float64(n)
	return n
}
