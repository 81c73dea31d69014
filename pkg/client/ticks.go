package client

import (
	"context"
	"sync/atomic"
	"time"
)

// ticks is the time as of some milliseconds ago, for denials where they are many: reading the clock is a quarter to a half of what one costs
// (docs/performance.md). It is never ahead of the clock, so that none by it says to stay away for less than it should. Where a ticker has to wait for
// a processor it is older than it should be, and units that are there again may be denied: so of tickOf denials of a bucket one reads the clock all
// the same, and stirs it.
type ticks struct {
	_      [64]byte     // what lies before it all decisions read
	at     atomic.Int64 // 0 while nobody ticks
	_      [56]byte
	sample atomic.Int64 // since when denials are counted that count for tickOf of them, and in the low byte how many there were
	wanted atomic.Bool  // the loop is to tick
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
	tickPhase  = 11 // bits
	tickMany   = 8
	tickWithin = 10_000
)

// denied notes a denial that read the clock.
func (t *ticks) denied(now int64) (many bool) {
	if now%tickOf != 0 || t.at.Load() > 0 {
		return false
	}
	was := t.sample.Load()
	since, met := was>>8, min(was&0xff+1, 0xff)
	if now-since >= tickWithin {
		since, met = now, 1
	}
	t.sample.Store(since<<8 | met) // over another's, at times: it is a guess
	return met >= tickMany && !t.wanted.Swap(true)
}

// stir has the ticks be no older than this, if anybody ticks.
func (t *ticks) stir(now int64) {
	if at := t.at.Load(); at > 0 && now-at > tickMargin/2 {
		t.at.CompareAndSwap(at, now) // or the ticker came to it
	}
}

// tick begins to tick, for a while, if that is wanted.
func (l *loop) tick() {
	c := l.c
	if !c.ticks.wanted.Swap(false) || c.ticks.at.Load() > 0 { // by one who was late to want it
		return
	}
	c.ticks.at.Store(c.now())
	l.calls.Go(func() { c.tick(l.ctx) })
}

// tick ticks for tickFor, or until ctx ends. One does at a time: what it does last lets the loop begin another.
func (c *Client) tick(ctx context.Context) {
	defer c.ticks.at.Store(0)
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
