package bucket

// Count is units admitted and denied.
type Count struct{ Admitted, Denied int64 }

// Booking is what became of a count that was handed over.
type Booking uint8

const (
	InARow       Booking = iota
	NoRoom               // it is handed over again
	OfNoInterest         // it never is
)

// Collected is what a look at a bucket came to.
type Collected struct {
	Decided  int64   // units admitted and denied since the last look
	Standing Account // see Standing
	Active   int64   // when something was last collected
	Leased   bool    // its lease lives
	Unbooked bool    // usage is in no row yet, or requests are between taking and deciding
}

// Collect takes what the bucket admitted and denied since the last Collect, and hands book what is to be booked of it and is not
// yet, with the counts up to which all is booked then: no unit twice, nor one that a request under way may still put back. metered
// says that what was admitted is of interest. now is when, for idle eviction.
//
// What is admitted on an ancestor's bucket belongs to the tenant of the request,
// and is booked there: it is taken off here. It is read after what was admitted,
// and raised before units are taken, so the difference is never too much.
func (b *Bucket) Collect(now int64, metered bool, book func(c, upTo Count) Booking) Collected {
	b.mu.Lock()
	defer b.leave()
	b.topUpLocked(now)
	got := b.collectLocked()
	decided := got.Admitted + got.Denied
	if decided > 0 {
		b.activeLocked(now)
	}
	b.bookLocked(metered, book)
	return Collected{
		Decided: decided, Standing: b.standingLocked(), Active: b.idleFrom(), Leased: b.live && !b.counting, Unbooked: b.unbookedLocked(),
	}
}

func (b *Bucket) collectLocked() (got Count) {
	b.foldLocked()
	if a := b.stock.admitted(); a > b.collectedAdmitted {
		got.Admitted = a - b.collectedAdmitted
		b.collectedAdmitted = a
		b.setUnrowedLocked(b.unrowed+got.Admitted, b.unrowedDenied)
	}
	if d := b.stock.denied(); d > b.collectedDenied {
		got.Denied = d - b.collectedDenied
		b.collectedDenied = d
		b.setUnrowedLocked(b.unrowed, b.unrowedDenied+got.Denied)
	}
	return got
}

func (b *Bucket) setUnrowedLocked(admitted, denied int64) {
	if admitted != b.unrowed || denied != b.unrowedDenied {
		r := b.own()
		r.unrowed, r.unrowedDenied = admitted, denied
	}
}

// bookLocked hands over what was collected and not booked yet.
func (b *Bucket) bookLocked(metered bool, book func(c, upTo Count) Booking) {
	// Excused after what was refused: too few are denied for now, never too many.
	own, denied := b.unrowed-b.stock.inherited(), max(b.unrowedDenied-b.stock.excused(), 0)
	if b.unrowed == 0 && denied == 0 {
		return
	}
	c := Count{Denied: denied}
	if metered {
		c.Admitted = max(own, 0)
	}
	upTo := b.bookedLocked()
	upTo.Denied += denied
	if c != (Count{}) && book(c, Count{upTo.Admitted + max(own, 0), upTo.Denied}) == NoRoom {
		return
	}
	b.setUnrowedLocked(b.unrowed-max(own, 0), b.unrowedDenied-denied)
}

// Booked returns up to which counts usage was booked.
func (b *Bucket) Booked() Count {
	b.mu.Lock()
	defer b.leave()
	return b.bookedLocked()
}

func (b *Bucket) bookedLocked() Count {
	return Count{b.collectedAdmitted - b.unrowed, b.collectedDenied - b.unrowedDenied}
}

// unbookedLocked reports whether the bucket has usage that is in no row yet, or
// requests between taking and deciding.
func (b *Bucket) unbookedLocked() bool {
	return !b.settledLocked() || b.unrowed > b.stock.inherited() || b.unrowedDenied > b.stock.excused()
}

// settledLocked reports whether all that was admitted was collected, and no request is
// between taking and deciding.
func (b *Bucket) settledLocked() bool {
	b.foldLocked()
	return b.pending.Load() == 0 && b.stock.admitted() == b.collectedAdmitted && b.stock.denied() == b.collectedDenied
}

// Counts returns units admitted and denied in all, and of those admitted how many are of its own tenant.
func (b *Bucket) Counts() (admitted, denied, own int64) {
	b.mu.Lock()
	defer b.leave()
	b.foldLocked()
	admitted = b.stock.admitted()
	return admitted, max(b.stock.denied()-b.stock.excused(), 0), max(admitted-b.stock.inherited(), 0)
}

// Idle reports whether the bucket can make room for others, and since when nothing was collected from it: no request waits
// at it, has something of it, or is deciding.
func (b *Bucket) Idle() (since int64, ok bool) {
	b.mu.Lock()
	defer b.leave()
	ok = b.queue == nil && b.pending.Load() == 0 && b.reservedLocked() == 0 && !b.chargedLocked() && !(b.slots && b.stock.inUse() > 0) &&
		!(b.touched > 0 && !b.met) && !b.free
	return b.idleFrom(), ok
}

// Quiet reports whether no request has units in hand that it may still put back.
func (b *Bucket) Quiet() bool { return b.pending.Load() == 0 }
