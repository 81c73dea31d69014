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
	sample atomic.Int64 // since when denials are counted that count for tickOf of them, and in the low byte how many there were
	wanted atomic.Bool  // the loop is to tick
	_      [40]byte     // to a cache line's length: what lies beside it others write
}

const (
	tickEvery = 4 * time.Millisecond
	// tickFor is how long it ticks before it is to be wanted anew, which takes a flood some hundred denials.
	tickFor = time.Second
	// tickMargin is how much longer than now a bucket must deny to do so by the last tick, in microseconds.
	tickMargin = 20_000
	// Of tickOf denials that read the clock one is looked at, by chance. So many of them in tickWithin microseconds, 50,000 denials a second, are
	// worth five times the ticks.
	tickOf     = 64
	tickMany   = 8
	tickWithin = 10_000
)

// denied notes a denial that read the clock.
func (t *ticks) denied(now int64) (many bool) {
	if now%tickOf != 0 {
		return false
	}
	was := t.sample.Load()
	since, met := was>>8, min(was&0xff+1, 0xff)
	if now-since >= tickWithin {
		since, met = now, 1
	}
	t.sample.Store(since<<8 | met) // over another's, at times: it is a guess
	return met >= tickMany && t.at.Load() == 0 && !t.wanted.Swap(true)
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
