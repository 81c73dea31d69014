package bucket

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// What trickles and finds no room is void. The store is told how much that was, and when the last of it came: what goes back to a bucket that
// could be full after that would come on top of a full one.

// void is how much of a lease found no room, in quarters of a unit, times mostFound; and beside that, less than mostFound, how much did find some when
// some last found none, in eighths of what is in the cell at a time. It is one number, for there are millions of buckets.
type void int64

const (
	quarter   = limit.Micro / 4
	mostFound = 4 * eighths // what found room is told as less than that
	eighths   = 8
)

func voidOf(quarters, found int64) void { return void(quarters*mostFound + found) }

func (v void) quarters() int64 { return int64(v) / mostFound }

func (v void) found() int64 { return int64(v) % mostFound }

// voidedLocked notes that of what trickled until now some found no room, all in micro-units.
func (b *Bucket) voidedLocked(now, trickled, none int64) {
	if b.laxLocked() {
		return
	}
	quarters := b.void.quarters() + (none+quarter/2)/quarter
	found := math.Ceil(eighths * float64(trickled-none) / float64(b.partLocked()*limit.Micro))
	b.void, b.voidAt = voidOf(min(quarters, 4*limit.MaxUnits), int64(min(max(found, 0), mostFound-1))), now
}

// surelyVoidLocked is how many units of the lease found no room, and how long ago the last of them came, in microseconds. Of as many as are in the
// cell at a time nobody knows: they may have made room just before the refill that found none. Nor is it known when the last came. It is said to
// have been before what found room, as if that had been spent since.
func (b *Bucket) surelyVoidLocked(now int64) (units, ago int64) {
	part := b.partLocked()
	if units = b.void.quarters()/4 - part; units <= 0 {
		return 0, 0
	}
	ago = max(now-b.voidAt, 1)
	if b.trickle > 0 {
		ago += int64(float64(part*b.void.found()) / eighths * 1e12 / float64(b.trickle))
	}
	return units, min(ago, max(now-b.answeredAt, 1)) // no earlier than the lease
}

// heardLocked has what a renewal told of not be told again. The rest came since that was sent; a little of it is let go, for it takes room in memory.
func (b *Bucket) heardLocked(told int64) {
	if rest := b.void.quarters() - told; rest > 2*b.partLocked() {
		b.void = voidOf(rest, b.void.found())
	} else {
		b.void, b.voidAt = 0, 0
	}
}
