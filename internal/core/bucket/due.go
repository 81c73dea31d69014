package bucket

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// Never is the time of a bucket that needs no attention.
const Never = math.MaxInt64

const (
	// earlyEvery is the least time between two renewals that nobody waits for, in microseconds: a few round trips.
	earlyEvery = 20_000
	// lowest says how often a lease that runs low may be renewed: once in a term divided by it.
	lowest = 5
	// quiet is how long after its last renewal an empty bucket tells the store so, if no request asked for more. It is
	// below lease.MaxStep, the furthest that the store's clock takes a leased bucket in one step.
	quiet = 15_000_000
)

// dueLocked returns when the bucket next needs a renewal: now or earlier when it does already, Never when nothing is
// leased and nobody waits.
func (b *Bucket) dueLocked(now int64) int64 {
	if b.counting {
		return Never
	}
	return min(b.dueLeaseLocked(now), b.dueQueueLocked(now), b.dueEdgeLocked(now), b.turnTimeLocked(now))
}

// dueLeaseLocked is dueLocked for the lease alone.
func (b *Bucket) dueLeaseLocked(now int64) int64 {
	inUse := b.slots && b.stock.inUse() > 0
	switch {
	case b.ask != nil:
		return now
	case !b.live:
		return b.dueUnleasedLocked(now, inUse)
	case !b.holdsLocked() && !b.early && !inUse && b.next == 0 && b.debt == 0:
		return b.expires // nothing to give back, nothing to tell, and nothing wanted: it may lapse
	}
	if now >= b.checkAtLocked() {
		b.checkLocked(now)
	}
	if b.stock.shared.Load().keep.Load() == noticed {
		if at := b.lastAsk + b.earlyEveryLocked(); now < at {
			return min(at, b.checkAtLocked(), b.renewAt)
		}
		if b.surplusLocked() { // still
			return now
		}
	}
	if b.early {
		return min(max(now, b.lastAsk+b.earlyEveryLocked()), b.renewAt)
	}
	return min(b.checkAtLocked(), b.renewAt)
}

// dueUnleasedLocked is when a bucket without a lease has something to tell.
func (b *Bucket) dueUnleasedLocked(now int64, inUse bool) int64 {
	switch {
	case b.free, b.alone:
		return now
	case inUse && !b.gone:
		return b.lastAsk + lease.ShortTerm // the store is to know of the slots in use
	case b.onCreditLocked():
		return b.expires
	case !b.gone && b.heldOutLocked():
		return b.lastAsk + quiet
	}
	return Never
}

// heldOutLocked reports whether the store takes some spent units for still out, because it granted them for no waiting
// request. Unless it hears of them, the bucket refills for no longer than leases last. Windows do not refill.
func (b *Bucket) heldOutLocked() bool {
	return b.length == 0 && !b.slots && b.admittedLocked() > b.spentBase
}

// Soon reports whether the renewal at the term's end is near enough, within half of its lead, to go with others that
// are due now. So does what was admitted on credit. A lease that may lapse is not renewed; slots and windows keep to
// their times.
func (b *Bucket) Soon(now int64) bool {
	defer b.enter().leave()
	return b.soonLocked(now) && (b.holdsLocked() || b.onCreditLocked())
}

// soonLocked is Soon, whatever the lease holds.
func (b *Bucket) soonLocked(now int64) bool {
	if b.counting || b.slots || b.length > 0 || b.ask != nil {
		return false
	}
	return b.live && now >= b.renewAt-b.leadLocked(b.term())/2 || !b.live && b.onCreditLocked()
}

// leadLocked is how long before a term's end the bucket renews. A lease goes on while its renewal is unanswered, so a
// little is enough; slots in use would be given to others.
func (b *Bucket) leadLocked(term int64) int64 {
	if b.slots {
		return term / 5
	}
	return term / 20
}

// unusedLocked reports whether the next renewal should be final and give back what is held: demand stopped, or a whole
// term went by without any. A term that is still growing is no time to judge by.
func (b *Bucket) unusedLocked(now int64) bool {
	b.foldLocked()
	if b.inHandLocked() || b.onCreditLocked() {
		return false
	}
	if !b.live && b.heldOutLocked() {
		return true
	}
	admitted, denied := b.admittedLocked(), b.refused.Load()
	if b.stopped && b.term() <= lease.ShortTerm {
		return admitted+denied == b.checked
	}
	grows := !b.stopped && b.term() > lease.ShortTerm && b.term() < lease.LongTerm
	over := b.stopped || b.term() <= lease.LongTerm || now >= b.renewAt-b.leadLocked(b.term())/2
	return admitted == b.answered() && denied == b.answeredDenied() && !grows && over
}

// Untold reports whether requests were admitted or denied that no renewal has told the store of. An empty lease lapses
// untold: the next one's renewal tells the store.
func (b *Bucket) Untold() bool {
	defer b.enter().leave()
	return b.owedLocked() > 0 || b.met && !b.counting && b.admittedLocked()+b.deniedLocked() > b.toldAdmitted+b.toldDenied
}
