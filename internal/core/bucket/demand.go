package bucket

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// checkLocked asks for an early renewal when demand fell by more than half, and
// by more than noise, so that what is held here and no longer used reaches others.
func (b *Bucket) checkLocked(now int64) {
	b.topUpLocked(now)
	asked := b.admittedLocked() + b.deniedLocked()
	seen := float64(asked - b.checked)
	expected := b.rate() * float64(now-b.checkedAt()) / 1e6
	b.stopped = seen == 0 && expected >= stopped
	if seen == 0 && expected >= enough || expected-seen > expected/2+2*math.Sqrt(expected) || b.missedLocked(now, expected, seen) {
		b.early = true
	}
	b.checked, b.looked = asked, int32(min(now-b.lastAsk, math.MaxInt32))
}

// missedLocked reports whether demand fell by less than half, and that would use up half of what the whole bucket has left before the end of a
// term of minutes: others may ask for all of that.
func (b *Bucket) missedLocked(now int64, expected, seen float64) bool {
	fell := expected - seen
	return b.term() > lease.LongTerm && fell > expected/8+4*math.Sqrt(expected) &&
		fell*float64(b.renewAt-now) > float64(b.remaining/2)*float64(now-b.checkedAt())
}

// rate is the units asked for a second, as of the last renewal.
func (b *Bucket) rate() float64 { return float64(b.demand) }

// checkedAt is when demand was last held against rate.
func (b *Bucket) checkedAt() int64 { return b.lastAsk + int64(b.looked) }

// enough is how many units must be expected for a check to tell their absence from noise.
const enough = 3

// stopped is how many units must be expected for their absence to mean that demand stopped.
const stopped = 8

// checkAtLocked returns when to hold demand against rate next: Never where too
// little is expected for a check to find anything, so that a great many quiet
// buckets cost their owner nothing between renewals.
func (b *Bucket) checkAtLocked() int64 {
	if b.unchecked {
		return Never
	}
	term := b.term()
	every := max(term/checks, checkEvery)
	switch {
	case b.slots || b.length > 0:
		every = min(checkLong, term/4) // terms of slots and windows do not grow so
	case term <= lease.LongTerm:
		every = min(every, checkLong)
	default:
		every = min(term/longChecks, max(term/scarceChecks, b.lastsLocked()/2))
	}
	rate := b.rate()
	if rate*float64(every) < enough*1e6 {
		if term < 2*lease.LongTerm || rate*float64(term/2) < stopped*1e6 {
			return Never
		}
		every = int64(stopped * 1e6 / rate) // a term is long enough to give back what is not used
	}
	return b.checkedAt() + every
}

// lastsLocked is how long what the whole bucket has left makes up for the trickle here, were it of no use to anybody, in microseconds.
func (b *Bucket) lastsLocked() int64 {
	if b.trickle == 0 {
		return b.term()
	}
	return int64(min(float64(b.remaining)*1e12/float64(b.trickle), float64(b.term())))
}
