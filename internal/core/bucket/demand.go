package bucket

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/lease"
)

const (
	// checkEvery is the shortest time between two checks of demand, in microseconds, and checkLong the longest in terms
	// no longer than lease.LongTerm. Both are shorter where the burst is small (lease.Prompt).
	checkEvery = lease.ShortTerm / 4
	checkLong  = 500_000
	// checks is how many there are in such a term.
	checks = 16
	// Looking at longer terms may cost more than renewing them, so longChecks are enough. Up to scarceChecks are made
	// where the trickle here would use up half of what the whole bucket has left before the next one.
	longChecks   = 4
	scarceChecks = 64
	// enough is how many units must be expected for a check to tell their absence from noise.
	enough = 3
	// stopped is how many units must be expected for their absence to mean that demand stopped.
	stopped = 8
)

// checkLocked asks for an early renewal when demand fell by half and more than noise, so that others get what is left.
// It does so too when demand rose while the bucket denies.
func (b *Bucket) checkLocked(now int64) {
	b.topUpLocked(now)
	asked := b.admittedLocked() + b.deniedLocked()
	seen := float64(asked - b.checked)
	expected := b.rate() * float64(now-b.checkedAt()) / 1e6
	b.stopped = seen == 0 && expected >= stopped
	moved := math.Abs(seen-expected) > expected/2+2*math.Sqrt(expected) && (seen < expected || seen >= stopped && now < b.denyUntil)
	if seen == 0 && expected >= enough || moved || b.missedLocked(now, expected, seen) {
		b.early = true
	}
	b.checked, b.looked = asked, int32(min(now-b.lastAsk, math.MaxInt32))
}

// missedLocked reports whether demand fell by less than half, but others may miss the unused units. It is for terms of
// minutes. By the term's end those units would come to half of what the whole bucket has left.
func (b *Bucket) missedLocked(now int64, expected, seen float64) bool {
	fell := expected - seen
	return b.term() > lease.LongTerm && fell > expected/8+4*math.Sqrt(expected) &&
		fell*float64(b.renewAt-now) > float64(b.remaining/2)*float64(now-b.checkedAt())
}

// rate is the units asked for a second, as of the last renewal.
func (b *Bucket) rate() float64 { return float64(b.demand) }

// checkedAt is when demand was last held against rate.
func (b *Bucket) checkedAt() int64 { return b.lastAsk + int64(b.looked) }

// checkAtLocked returns when to hold demand against rate next: Never where too little is expected for a check to find
// anything, so that a great many quiet buckets cost their owner nothing between renewals.
func (b *Bucket) checkAtLocked() int64 {
	if b.unchecked {
		return Never
	}
	prompt := int64(b.prompt)
	if prompt > 0 && b.looked == 0 && b.denyUntil > b.lastAsk+prompt {
		return b.lastAsk + prompt // the store may have said to deny before it knew the demand
	}
	term := b.term()
	var every int64
	switch {
	case b.slots || b.length > 0:
		every = min(checkLong, term/4) // terms of slots and windows do not grow so
	case term <= lease.LongTerm:
		every = min(max(term/checks, checkEvery), checkLong)
	default:
		lasts := float64(term) // what the whole bucket has left, as the trickle here would use it up
		if b.trickle > 0 {
			lasts = min(float64(b.remaining)*1e12/float64(b.trickle), lasts)
		}
		every = min(term/longChecks, max(term/scarceChecks, int64(lasts/2)))
	}
	rate := b.rate()
	if prompt > 0 && rate > 0 {
		every = min(every, max(every*prompt/checkEvery, int64(stopped*1e6/rate)))
	}
	if rate*float64(every) < enough*1e6 {
		if term < 2*lease.LongTerm || rate*float64(term/2) < stopped*1e6 {
			return Never
		}
		every = int64(stopped * 1e6 / rate) // a term is long enough to give back what is not used
	}
	return b.checkedAt() + every
}
