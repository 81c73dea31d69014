package client

import (
	"context"
	"sync/atomic"
	"time"
)

// ticks is the time as of some milliseconds ago, for denials where they are many: reading the clock is a third of what one costs
// (docs/performance.md). It is never ahead of the clock, so that a denial by it says to stay away for no shorter than it should, and none
// comes too late by more than the ticks stood still beyond tickMargin.
type ticks struct {
	at     atomic.Int64 // 0 while nobody ticks
	sample atomic.Int64 // when the last denial was that counts for tickOf of them
	wanted atomic.Bool  // the loop is to tick
	_      [40]byte     // to a cache line's length: what lies beside it others write
}

const (
	tickEvery = 4 * time.Millisecond
	// tickFor is how long it ticks before it is to be wanted anew, which takes a flood no more than some hundred denials.
	tickFor = time.Second
	// tickMargin is how much longer than now a bucket must deny to do so by the last tick, in microseconds.
	tickMargin = 20_000
	// Of tickOf denials that read the clock one is looked at, by chance. Two of them in tickWithin microseconds are many.
	tickOf     = 64
	tickWithin = 1000
)

// denied notes a denial that read the clock.
func (t *ticks) denied(now int64) (many bool) {
	if now%tickOf != 0 {
		return false
	}
	was := t.sample.Swap(now)
	return was > 0 && now-was < tickWithin && t.at.Load() == 0 && !t.wanted.Swap(true)
}

// tick begins to tick, for a while, if that is wanted.
func (l *loop) tick() {
	c := l.c
	if !c.ticks.wanted.Load() {
		return
	}
	c.ticks.at.Store(c.now())
	c.ticks.wanted.Store(false)
	l.calls.Go(func() {
		c.tick(l.ctx)
		c.ticks.at.Store(0)
	})
}

func (c *Client) tick(ctx context.Context) {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for until := c.now() + tickFor.Microseconds(); ; {
		now := c.now()
		c.ticks.at.Store(now)
		if now >= until {
			return
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
