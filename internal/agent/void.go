package agent

import (
	"math"

	"github.com/f4ee788f/quota/internal/limit"
)

// What trickles and finds no room is void. The store is told how much that was, and when the last of it came: what goes back to a bucket that
// could be full after that would come on top of a full one.

// void is how many units of a lease found no room, times mostFound, and beside that how much did find some when others last found none, in eighths of what
// is in the cell at a time: less than mostFound.
type void int64

const mostFound = 32

// voidedLocked notes that of what trickled until now, in micro-units, some units found no room. The others came last, for what was spent may have been
// spent just now.
func (b *book) voidedLocked(now, trickled, units int64) {
	if b.laxLocked() {
		return
	}
	found := float64(trickled-units*limit.Micro) * inParts / float64(b.partLocked()*limit.Micro)
	all := min(int64(b.void)/mostFound+units, limit.MaxUnits)
	b.void, b.voidAt = void(all*mostFound+int64(min(max(math.Ceil(found), 0), mostFound-1))), now
}

// surelyVoidLocked is how many units of the lease found no room, and how long ago the last of them came, in microseconds. Of as many as are in the
// cell at a time nobody knows: they may have made room just before the refill that found none.
func (b *book) surelyVoidLocked(now int64) (units, ago int64) {
	part := b.partLocked()
	if units = int64(b.void)/mostFound - part; units <= 0 || b.trickle == 0 {
		return 0, 0
	}
	found := float64(part) * float64(b.void%mostFound) / inParts
	return units, max(now-b.voidAt, 1) + int64(found*1e12/float64(b.trickle))
}
