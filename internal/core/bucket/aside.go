package bucket

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Decisions do not look at the clock: of what is spent from a cell it is only known that it was between two refills. What trickles meanwhile may have
// found room or not, and where it may not have it is void. So not all that a lease has lies in the cell. The rest is aside, and when the cell is
// empty it is known when that much had been spent: no more can be void than what trickles in that time, however much the lease has.

const (
	// inParts is into how many parts what a lease may have is divided, of which one is in the cell.
	inParts = 8
	// bulk is how many units are in the cell of a strained agent's lease, or else half of what it may have: a request that finds the cell empty
	// takes ten times as long as another, and such an agent has enough to do.
	bulk = 128
	// little is what a strained agent's lease may have, in units, where a part of one is more than what it may be worth.
	little = 8
)

// laxLocked reports whether what may have found no room is taken to have found some: what is void comes back only with the next renewal, which is
// late for who is under heavy strain, or has next to nothing, and never asked for where requests are paced (nor is anything aside
// of these, and of what was a window once). What that may come to is in docs/error-bound.md. First leases are not lax: a server's strain
// is worst when all of them begin, and they are likely to rest.
func (b *Bucket) laxLocked() bool {
	return !b.exact && (b.paced || b.spans || b.turns > 0 && (b.heavy || b.strained && b.room < little))
}

// putAsideLocked leaves a part of the lease in the cell, just after a refill.
func (b *Bucket) putAsideLocked(now int64) {
	n := b.usualAsideLocked()
	if n == 0 || b.aside() != 0 || b.debt > 0 || b.queue != nil || b.stock.due() > 0 || b.shutLastsLocked(now) {
		return
	}
	if short := b.stock.credit(-n); short > 0 {
		b.stock.credit(n - short) // requests took of it just now
		return
	}
	b.apart = int32(n)
}

// usualAsideLocked is how many of the units that were left after the last refill lie aside, as a rule.
func (b *Bucket) usualAsideLocked() int64 {
	if !b.live || b.trickle == 0 || b.spans || b.slots || b.paced || b.laxLocked() {
		return 0
	}
	return min(max(b.level/limit.Micro-b.partLocked(), 0), math.MaxInt32)
}

// partLocked is how many units are in the cell after a refill, if there are as many: of these nobody knows when they were spent.
func (b *Bucket) partLocked() int64 {
	part := max((b.room+inParts-1)/inParts, 1)
	if b.strained {
		part = max(part, min((b.room+1)/2, bulk))
	}
	return part
}

// bringLocked puts what lies aside into the cell. What came back goes there with it, so it pays first what is owed.
func (b *Bucket) bringLocked() {
	if b.aside() > 0 {
		b.payLocked()
		b.stock.credit(b.aside())
		b.apart = 0
	}
}
