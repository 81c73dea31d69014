package bucket

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Decisions do not look at the clock, so we do not record when tokens are spent, only that it was between two refills.
// Tokens that trickled in meanwhile are void where they may have found no room. So only a part of a lease lies in the
// cell, and the rest lies aside. An empty cell shows that this part has been spent by then. So no more can be void than
// trickles in that time, however large the lease is.

const (
	// inParts is into how many parts a lease is divided. One of them is in the cell.
	inParts = 8
	// bulk is how many units are in the cell under strain, or half of the lease if that is less. A request that finds
	// the cell empty takes ten times as long as another, and a strained agent has enough to do.
	bulk = 128
	// little is the size, in units, below which a lease is lax under any strain: a part of it is not worth much.
	little = 8
)

// laxLocked reports whether the trickle counts as having found room wherever it may have. Void units come back only
// with the next renewal. Under heavy strain that is late, and a small lease gets next to nothing. Paced requests never
// ask for it. Nothing lies aside of a lax lease. docs/error-bound.md says what it may cost. First leases are not lax: a
// server's strain is worst when all of them begin, and they are likely to rest.
func (b *Bucket) laxLocked() bool {
	return !b.exact && (b.paced || b.spans || b.turns > 0 && (b.strain == heavy || b.strain > calm && b.room < little))
}

// putAsideLocked leaves a part of the lease in the cell, just after a refill.
func (b *Bucket) putAsideLocked(now int64) {
	if !b.live || b.trickle == 0 || b.spans || b.paced || b.laxLocked() {
		return
	}
	n := min(max(b.level/limit.Micro-b.partLocked(), 0), math.MaxInt32)
	shut := b.stock.shared.Load().shutUntil.Load() > now
	if n == 0 || b.apart != 0 || b.debt > 0 || b.waiters != nil || b.stock.due() > 0 || shut {
		return
	}
	if short := b.stock.credit(-n); short > 0 {
		b.stock.credit(n - short) // requests took of it just now
		return
	}
	b.apart = int32(n)
}

// partLocked is how many units are in the cell after a refill, if there are as many. Their spending times are unknown.
func (b *Bucket) partLocked() int64 {
	part := max((b.room+inParts-1)/inParts, 1)
	if b.strain > calm {
		part = max(part, min((b.room+1)/2, bulk))
	}
	return part
}

// bringLocked puts the units that lie aside into the cell. Units that came back go there too, so they pay debts first.
func (b *Bucket) bringLocked() {
	if b.apart > 0 {
		b.payLocked()
		b.stock.credit(b.aside())
		b.apart = 0
	}
}

// Trickled units that find no room are void. The store is told how many there were, and when the last of them came.
// Units given back to a bucket that could be full after that would come on top of a full one.
//
// A bucket keeps three figures: void, in quarters of a unit; voidAt, when some units last found no room; and found.
// found is how much of the trickle did find room just before, in eighths of the part that is in the cell.

const (
	quarter   = limit.Micro / 4
	eighths   = 8
	mostFound = 4*eighths - 1 // the most that found says
)

// voidedLocked notes how much trickled until now and how much of it found no room, both in micro-units.
func (b *Bucket) voidedLocked(now, gained, none int64) {
	if b.laxLocked() {
		return
	}
	found := math.Ceil(eighths * float64(gained-none) / float64(b.partLocked()*limit.Micro))
	b.void = uint32(min(int64(b.void)+(none+quarter/2)/quarter, 4*limit.MaxUnits))
	b.found, b.voidAt = uint8(min(max(found, 0), mostFound)), now
}

// surelyVoidLocked is how many units of the lease found no room, and how many microseconds ago the last of them came.
// One part, the most in the cell at a time, is left out: it may have made room just before the refill that found none.
// The last void unit is dated before the units that found room, as if these had been spent since.
func (b *Bucket) surelyVoidLocked(now int64) (units, ago int64) {
	part := b.partLocked()
	if units = int64(b.void)/4 - part; units <= 0 {
		return 0, 0
	}
	ago = max(now-b.voidAt, 1)
	if b.trickle > 0 {
		ago += int64(float64(part*int64(b.found)) / eighths * 1e12 / float64(b.trickle))
	}
	return units, min(ago, max(now-b.answeredAt, 1)) // no earlier than the lease
}
