package bucket

import (
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Out of contact a bucket that refills goes on with its fallback, whether or not its lease lives: lease/fallback.go. A
// fixed window goes on with its part of each further window (turnLocked).

const mostTurns = 24 // requests that may wait for the fallback until it brings more than is asked for

// Lose says that contact is lost, and reports whether requests wait.
func (b *Bucket) Lose(now int64) (urgent bool) {
	defer b.enter().leave()
	b.loseLocked(now)
	return b.waiters != nil
}

// loseLocked drops a fallback that the store gave up before contact was lost.
func (b *Bucket) loseLocked(now int64) {
	switch {
	case b.alone:
	case !b.live && now >= b.expires-b.term()+lease.Remembered:
		b.fallback = 0
	case b.trickle == 0:
		b.last = now // it gains from here on
	}
}

// fallBackLocked goes over to the fallback, with no more than its part of the burst, and with a token at least.
func (b *Bucket) fallBackLocked(now int64) {
	if !b.fallsBackLocked() {
		return
	}
	last := b.last
	have := b.refillLocked(now)
	if b.trickle > 0 {
		last = now
	}
	if !b.live {
		b.live, b.expires = true, min(b.expires, now)
	}
	b.mayWait = mostTurns
	b.alone, b.trickle, b.room = true, int64(b.fallback), b.partOfBurstLocked()
	more := min(b.room-have, 0)
	if have == 0 {
		more = 1
	}
	more += b.stock.credit(more)
	if b.ask != nil {
		b.ask.Held += min(more, 0) // its answer does not replace them
	}
	b.levelLocked(have + more)
	b.last = last
	b.refillLocked(now)
}

// fallsBackLocked reports whether there is a fallback to go over to.
func (b *Bucket) fallsBackLocked() bool {
	return b.refills() && (!b.alone || !b.live) && b.onOutage == limit.OutageFallback && b.partOfBurstLocked() > 0
}

// partOfBurstLocked is the fallback's part of the burst.
func (b *Bucket) partOfBurstLocked() int64 {
	all := float64(b.Rate.Units) * limit.Micro * 1e6 / float64(b.Rate.Per.Microseconds())
	return int64(float64(b.Burst) * min(float64(b.fallback)/all, 1))
}

// aloneLocked reports whether it goes on with its fallback.
func (b *Bucket) aloneLocked() bool { return b.live && b.alone && b.refills() }

// comesLocked reports whether the fallback soon brings n units that are not here, and few wait for it.
func (b *Bucket) comesLocked(now, n int64) bool {
	return b.aloneLocked() && !b.paced && n <= b.room && b.mayWait > 0 &&
		b.last+b.trickleTakesLocked(n-b.stock.units()-b.aside()+b.waitingLocked().missing) <= now+outageWait
}
