package bucket

import "github.com/f4ee788f/quota/internal/core/lease"

// Count is units admitted and denied.
type Count struct{ Admitted, Denied int64 }

// Booking says whether a count that was handed over is booked.
type Booking uint8

const (
	InARow       Booking = iota
	NoRoom               // it is handed over again
	OfNoInterest         // it never is
)

// Collected is what a look at a bucket came to.
type Collected struct {
	Decided  int64         // units admitted and denied since the last look
	Standing lease.Account // see Standing
	Active   int64         // when something was last collected
	Leased   bool          // its lease lives
	Unbooked bool          // usage is in no row yet, or requests are between taking and deciding
}

// Collect takes the units admitted and denied since the last Collect. It hands book those that are not booked yet, with
// the counts up to which all is booked then. It hands over no unit twice, nor one that a request under way may still
// put back. metered says that admitted units are of interest. now is when, for idle eviction.
//
// Units admitted on an ancestor's bucket belong to the request's tenant and are booked there, so they are taken off
// here. Their count is read after the admitted units, and raised before units are taken: it is never too small.
func (b *Bucket) Collect(now int64, metered bool, book func(c, upTo Count) Booking) Collected {
	defer b.enter().leave()
	b.topUpLocked(now)
	got := b.collectLocked()
	decided := got.Admitted + got.Denied
	if decided > 0 {
		b.active = grains(now)
	}
	b.bookLocked(metered, book)
	return Collected{
		Decided: decided, Standing: b.standingLocked(), Active: b.idleFrom(),
		Leased: b.live && !b.counting, Unbooked: b.unbookedLocked(),
	}
}

// unbookedLocked reports whether usage was not collected yet, or is in no row, or may still change.
func (b *Bucket) unbookedLocked() bool {
	b.foldLocked()
	e := b.stock.elsewhere()
	return b.pending.Load() != 0 || b.countsLocked() != Count{b.collectedAdmitted, b.collectedDenied} ||
		b.unrowed > e.inherited.Load() || b.unrowedDenied > e.excused.Load()
}

// countsLocked is what was admitted and refused so far.
func (b *Bucket) countsLocked() Count { return Count{b.stock.admitted(), b.refused.Load()} }

func (b *Bucket) collectLocked() (got Count) {
	b.foldLocked()
	c := b.countsLocked()
	got = Count{max(c.Admitted-b.collectedAdmitted, 0), max(c.Denied-b.collectedDenied, 0)}
	b.collectedAdmitted += got.Admitted
	b.collectedDenied += got.Denied
	b.unrowed += got.Admitted
	b.unrowedDenied += got.Denied
	return got
}

// bookLocked hands over units that were collected and not booked yet.
func (b *Bucket) bookLocked(metered bool, book func(c, upTo Count) Booking) {
	// Read after the admitted and refused units: too few count here for now, never too many.
	e := b.stock.elsewhere()
	own, denied := max(b.unrowed-e.inherited.Load(), 0), max(b.unrowedDenied-e.excused.Load(), 0)
	c := Count{Denied: denied}
	if metered {
		c.Admitted = own
	}
	upTo := b.bookedLocked()
	if c != (Count{}) && book(c, Count{upTo.Admitted + own, upTo.Denied + denied}) == NoRoom {
		return
	}
	b.unrowed -= own
	b.unrowedDenied -= denied
}

// Booked returns up to which counts usage was booked.
func (b *Bucket) Booked() Count {
	defer b.enter().leave()
	return b.bookedLocked()
}

func (b *Bucket) bookedLocked() Count {
	return Count{b.collectedAdmitted - b.unrowed, b.collectedDenied - b.unrowedDenied}
}

// Counts returns all units admitted and denied, and how many of those admitted are its own tenant's.
func (b *Bucket) Counts() (admitted, denied, own int64) {
	defer b.enter().leave()
	b.foldLocked()
	c, e := b.countsLocked(), b.stock.elsewhere()
	return c.Admitted, max(c.Denied-e.excused.Load(), 0), max(c.Admitted-e.inherited.Load(), 0)
}

// Idle reports whether the bucket can make room for others, and since when nothing was collected from it. It can if no
// request waits at it, has units of it, or is deciding. The store must also know of all units admitted without a lease.
func (b *Bucket) Idle() (since int64, ok bool) {
	defer b.enter().leave()
	return b.idleFrom(), b.pending.Load() == 0 && !b.inHandLocked() && !b.onCreditLocked() && !b.free
}

// Quiet reports whether no request has units in hand that it may still put back.
func (b *Bucket) Quiet() bool { return b.pending.Load() == 0 }
