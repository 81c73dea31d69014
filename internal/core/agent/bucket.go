package agent

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Outcome is what a decision came to.
type Outcome uint8

const (
	Admitted Outcome = iota + 1
	Denied
	Wait // only a renewal can tell, or the request's turn has not come: enqueue a Waiter
	// Rematch: the bucket is no more; match again.
	Rematch
)

// Verdict is an outcome, and for a denial how long to stay away.
type Verdict struct {
	Outcome    Outcome
	RetryAfter int64 // microseconds; 0 when nothing better than "later" is known
	Attend     bool  // the owner is to look at the bucket before its time
	Never      bool  // of a denial: the whole bucket never has as many units
}

// endless is the stock of a bucket that only counts: more than can be spent in a
// life, and far enough from overflow.
const endless = 1 << 60

// askAgain is how long requests are denied without asking, whatever the store said, in microseconds: what
// was exhausted until a window's end may have some again, because another agent did not use what it
// had, a reservation was cancelled, or usage was corrected. One request a minute pays for it with a round trip. Where a
// trickle is drawn the store does not say to deny for longer than the lease lasts, which asks by itself.
const askAgain = 60_000_000

// deniesUntilLocked returns until when what is not here is denied without asking, for the store said so.
func (b *book) deniesUntilLocked() int64 {
	if b.live && b.trickle > 0 {
		return b.denyUntil
	}
	return min(b.denyUntil, b.lastAsk+askAgain)
}

// outageWait is how long to stay away from what is denied because the server is, in microseconds.
const outageWait = 1_000_000

// Bucket is an agent's copy of one bucket. Take, Commit and PutBack may be called by
// any number of requests at once, as may Slow; the others are for the owner's loop, and
// everything but Take, Commit and PutBack takes the mutex for some tens of nanoseconds.
//
// All times are microseconds of one monotonic clock, the caller's.
//
// There may be millions of buckets, so that bytes count (TestBytesPerBucket). The book is packed, and is read and written
// whole (book.go); what few buckets have is apart (seldom).
type Bucket struct {
	packed [packedBytes]byte
	tags
	mu      latch
	working working
	when    when // it is to be looked at; the schedule's
	marks   marks
	// What finds it reads the rest.
	from atomic.Pointer[scoped] // the scope, or what few buckets have
	at   *hot                   // what requests touch; of a journal's cell, or on the heap
}

// NewBucket returns a bucket for l without a lease: its first request waits for
// one, unless the limit only counts.
func NewBucket(l *limit.Limit) *Bucket { return newBucket(l, nil) }

func newBucket(l *limit.Limit, at *cell) *Bucket {
	of, s := new(Bucket), newScope()
	s.says(termsAlone(l))
	of.init(s, at, true, 0)
	return of
}

// init begins with a journal's cell; nil for none. alone says that there are few buckets.
func (of *Bucket) init(s *Scope, at *cell, alone bool, now int64) {
	of.from.Store(&s.scoped)
	if at != nil {
		of.at = &at.hot
		of.marks.set(durable, true)
	} else {
		of.at = newHot(alone)
	}
	of.mu.Lock()
	b := &new(hand).book // of zeros
	b.Bucket, b.cell = of, of.stock()
	defer b.close()
	b.adoptLocked()
	if b.counting {
		b.cell.credit(endless)
	}
	if now > 0 {
		b.activeLocked(now)
	}
}

// mapped is the bucket's cell where a journal has it; nil without.
func (of *Bucket) mapped() *cell {
	if !of.has(durable) {
		return nil
	}
	return (*cell)(unsafe.Pointer(of.at)) // in front of which it is
}

// stock is what requests touch, with nothing known of it yet.
func (of *Bucket) stock() stock {
	return stock{hot: of.at, cell: of.mapped(), apart: of.seldom()}
}

// foldLocked is cell.fold, after what came back has paid what is owed: units spent beyond the
// lease, slots in use beyond it. Slots that come back without a lease are nobody's.
func (b *book) foldLocked() int64 {
	b.payLocked()
	return b.cell.fold()
}

// Take removes n units (at least 1) if they are there: one atomic subtraction
// for a single unit. On false the caller asks Slow with the same n.
func (of *Bucket) Take(n int64) bool {
	return take(&of.at.tokens, n)
}

// Hold announces that n units about to be taken may be put back, because another
// limit of the request is asked later. Each Hold is followed by one Release,
// after PutBack where the units were taken and went back. Only a bucket whose
// units are billed needs it, and only where it is not the last to be asked.
func (of *Bucket) Hold(n int64) { of.at.pending.Add(n) }

// Release ends a Hold.
func (of *Bucket) Release(n int64) { of.at.pending.Add(-n) }

// PutBack returns n units that were taken for a request that another limit denied.
// They are spendable again at the next refill: taken once, put back once, never
// handed out twice.
func (of *Bucket) PutBack(n int64) {
	of.at.back.Add(n)
}

// Slow decides what Take(n) could not: it refills the cell from the trickle and
// tries again. lost says that the server is out of contact. The verdict is Wait
// when only a renewal can tell, or, where the limit says so, when the request's
// turn has not come.
func (of *Bucket) Slow(now, n int64, lost bool) Verdict { return of.Ask(now, n, lost, false) }

// Ask is Slow for a request that, if patient, waits its turn instead of being denied:
// enqueue a Waiter that is.
func (of *Bucket) Ask(now, n int64, lost, patient bool) Verdict {
	of.mu.Lock()
	b := of.openedLocked()
	if b == nil {
		return of.askPackedLocked(now, n, lost, patient)
	}
	defer b.close()
	return b.askLocked(now, n, lost, patient)
}

// askPackedLocked is Ask where the book is not open. It is apart, for a book is half a kilobyte, to be cleared before it is used.
//
//go:noinline
func (of *Bucket) askPackedLocked(now, n int64, lost, patient bool) Verdict {
	b := of.unpackLocked(new(book))
	defer b.closeChanged() // for this use is counted in it
	return b.askLocked(now, n, lost, patient)
}

func (b *book) askLocked(now, n int64, lost, patient bool) Verdict {
	b.usedLocked()
	patient = patient || b.queues
	b.foldLocked()
	ended := !b.live
	b.expireLocked(now, lost)
	again := ended && b.live // out of contact it goes on, and the owner, who had no more to do with it, has to see it end
	have := int64(0)
	if b.patients() == 0 { // those who wait their turn come first
		have = b.refillLocked(now)
		if b.cell.takeQuietly(n) {
			b.levelLocked(have - n) // gone already
			b.putAsideLocked(now)
			b.noteLowLocked(now, have)
			if b.cell.units()+b.aside == 0 {
				b.shutLocked(now, lost) // or the next would open it to be denied
			}
			return Verdict{Outcome: Admitted, Attend: b.early || again}
		}
	}
	switch {
	case lost && b.overLocked(now):
		return b.outageLocked(n)
	case b.hopelessLocked(n):
		// Asking would bring all that there is here, where it is of no use.
		b.cell.refuse(n)
		b.hopeless += n
		return Verdict{Outcome: Denied, Never: true}
	case b.touchLocked(now, n):
		return Verdict{Outcome: Admitted, Attend: true}
	case patient && !(lost && b.stuckLocked()):
		return Verdict{Outcome: Wait}
	case b.deniesLocked(now, n, lost):
		b.cell.refuse(n)
		if b.paced && !lost {
			b.noteLowLocked(now, have) // it asks for a larger trickle, if there is one
		}
		b.shutLocked(now, lost)
		return Verdict{Outcome: Denied, RetryAfter: b.retryAfterLocked(now, n, lost), Attend: b.early || again}
	case b.queue != nil && len(b.queue.waiters)-b.patients() >= maxWaiting:
		b.cell.refuse(n)
		return Verdict{Outcome: Denied}
	}
	return Verdict{Outcome: Wait}
}

// deniesLocked reports whether n units that are not here are denied without asking: the store said so, nobody is there to be asked, or
// the trickle alone says when.
func (b *book) deniesLocked(now, n int64, lost bool) bool {
	said := now < b.deniesUntilLocked() && n >= int64(b.least)
	return said || lost || b.paced && b.live && b.trickle > 0
}

// overLocked reports whether there is no lease to go on with while the server is away: none is live, or the term of
// the one that is has ended, and nothing comes of it any more.
func (b *book) overLocked(now int64) bool {
	switch {
	case !b.live:
		return true
	case now < b.expires:
		return false
	case b.length > 0:
		return b.share == 0 && b.next == 0
	}
	return b.stuckLocked()
}

// outageLocked answers for a bucket that has no lease to go on with while the server is away. What it admits the store is to
// know as soon as it can: the caller has the owner attend.
func (b *book) outageLocked(n int64) Verdict {
	if b.onOutage == limit.OutageOpen {
		b.admitFreeLocked(n)
		first := !b.free
		b.free = true
		if b.slots {
			b.unleased += n
		}
		return Verdict{Outcome: Admitted, Attend: first}
	}
	b.cell.refuse(n)
	return Verdict{Outcome: Denied, RetryAfter: outageWait}
}

// admitLocked admits n units whether or not they are there: they are spent at once and
// never in tokens, so that no one else can take them.
func (b *book) admitLocked(n int64) {
	b.cell.admit(n)
	if b.slots {
		b.debt += n // what comes back of them is nobody's
	}
}

// admitFreeLocked is admitLocked for a request that another limit may still deny: then n units come back that were nobody's, and are
// to be nobody's again.
func (b *book) admitFreeLocked(n int64) {
	b.admitLocked(n)
	if !b.slots && !b.counting {
		b.nobodys += n
	}
}

// refillLocked credits the trickle up to now and returns the spendable units, all of them in the cell. What there was no room for is void. When units
// were spent nobody knows, for that would cost each decision a look at the clock. It may have been just now, and all that
// was left after the last refill may have taken up its room until then: it is taken to have, unless the lease is lax.
func (b *book) refillLocked(now int64) int64 {
	b.bringLocked()
	have := b.foldLocked()
	if !b.live || b.trickle == 0 {
		b.last = now
		return have
	}
	elapsed := now - b.last
	if elapsed <= 0 {
		return have // a clock that stepped back must not refill the same second twice
	}
	b.last = now
	// More than an hour would pile up far beyond any pile, and could overflow.
	gained := min(elapsed, 3600_000_000)
	if b.trickle > 1<<53/3600_000_000 {
		gained = int64(float64(gained) * float64(b.trickle) / 1e6)
	} else {
		gained = gained * b.trickle / 1e6
	}
	left := b.level / limit.Micro
	trickled := gained
	gained += b.level % limit.Micro
	tokens := gained / limit.Micro
	b.level = gained % limit.Micro
	if b.debt > 0 {
		pay := min(b.debt, tokens)
		b.debt -= pay
		tokens -= pay
	}
	if b.laxLocked() {
		left = have
	}
	if room := max(b.room-max(left, have), 0); tokens > room {
		b.voidedLocked(now, trickled, (tokens-room)*limit.Micro+b.level)
		tokens = room
		b.level = 0
	}
	if tokens > 0 {
		b.cell.credit(tokens)
	}
	b.levelLocked(have + tokens)
	return have + tokens
}

// topUpLocked is refillLocked while nobody asks: what is spent of a stock makes room for the trickle from then on, and not
// only once all of it is gone.
func (b *book) topUpLocked(now int64) {
	if b.live && b.trickle > 0 && !b.slots && now < b.expires && b.patients() == 0 && !b.laxLocked() {
		b.refillLocked(now)
		b.putAsideLocked(now)
	}
}

// lowerLocked notes that the owner itself took units, just after a refill: they take up no room from then on.
func (b *book) lowerLocked() {
	b.levelLocked(min(b.level/limit.Micro, b.cell.units()+b.cell.due()))
}

// levelLocked notes how many whole units are left after a refill.
func (b *book) levelLocked(units int64) {
	b.level = min(max(units, 0), 1<<40)*limit.Micro + b.level%limit.Micro
}

// expireLocked ends a lease whose term is over. While the server is out of reach
// it goes on, and so it does while an answer is under way: its trickle was summed
// when it was granted, so all of them together still keep the limit for as long
// as the outage lasts, and a store holds an unrenewed lease's share for one term more.
func (b *book) expireLocked(now int64, lost bool) {
	b.turnLocked(now, lost)
	if !b.live || now < b.expires || lost || b.ask != nil {
		return
	}
	if now < b.keptLocked() && (b.trickle > 0 || b.idle() > 0 || b.reservedLocked() > 0) {
		b.early = true // its renewal is late by no more than the store waits for it
		return
	}
	b.voidLocked()
	b.ended = true
}

// keptLocked returns until when a lease that was not renewed in time may be all the same, and nothing of it is
// lost: the store keeps its share for a term after its end.
func (b *book) keptLocked() int64 { return b.expires + b.term/2 }

// voidLocked ends the lease: what is left of it can no longer be spent.
func (b *book) voidLocked() {
	b.bringLocked()
	b.live = false
	b.trickle, b.room, b.debt, b.next = 0, 0, 0, 0
	b.cell.credit(-b.foldLocked())
}

// turnLocked ends what is left of a window that is over. Out of contact, the agent
// goes on with its share of what remained of the window, and the next
// one begins with its share of it: that of a lease which was live when
// contact was lost, or whose end came before the loss was noticed.
func (b *book) turnLocked(now int64, lost bool) {
	if b.length <= 0 || !(b.live || b.ended) {
		return
	}
	if now < b.turnAt {
		if lost && b.live && b.rest > 0 {
			b.cell.credit(b.rest)
			b.rest, b.alone = 0, max(b.alone, onRest)
		}
		return
	}
	if b.goOverLocked(now, lost) {
		return
	}
	if b.live {
		b.cell.credit(-b.cell.fold())
		b.live, b.ended = false, true
	}
	if !lost || now-b.turnAt > lease.LongTerm && b.alone != onShare {
		return
	}
	n := (now-b.turnAt)/b.length + 1
	b.beginWindowLocked(b.window + n*b.length)
	b.turnAt += n * b.length
	b.live, b.ended, b.alone = true, false, onShare
	b.cell.credit(b.share)
}

// noteLowLocked asks for an early renewal when the trickle no longer carries the
// demand, so that the next request need not wait.
func (b *book) noteLowLocked(now, have int64) {
	if b.slots || now < b.denyUntil || now-b.lastAsk < max(earlyEvery, b.term/lowest) || have > b.room/4+1 || b.dry {
		return
	}
	asked := b.admittedLocked() - b.toldAdmitted + b.deniedLocked() - b.toldDenied
	if b.room > 1 && !b.laxLocked() && float64(asked)*1e12 <= float64(b.trickle)*float64(now-b.lastAsk) {
		return // it carries what was asked for since the last renewal, however little lies here
	}
	b.early = true
}

// retryAfterLocked is when n units may be there: from the trickle, or in the whole bucket, be it that asking
// makes sense before, for others may give some back; lost says that nobody is there to be asked.
func (b *book) retryAfterLocked(now, n int64, lost bool) int64 {
	wait := max(b.denyUntil-now, b.unitAt-now, 0)
	if b.live && b.trickle > 0 && n <= b.room {
		soon := b.trickleTakesLocked(n - b.cell.units() - b.aside + b.missingLocked())
		if wait == 0 || soon < wait || b.paced { // which is not asked for: it comes
			wait = soon
		}
	}
	if lost && wait == 0 {
		wait = outageWait
	}
	return max(wait, b.lacksLocked(now, n), 1)
}

// RetryAfter is when n units that the bucket just refused may be there; 0 where it never has as many. lost says that nobody is there to be
// asked.
func (of *Bucket) RetryAfter(now, n int64, lost bool) int64 {
	b := of.open(new(hand))
	defer b.close()
	if b.hopelessLocked(n) {
		return 0
	}
	return b.retryAfterLocked(now, n, lost)
}

// hopelessLocked reports whether n units are more than the whole bucket ever has.
func (b *book) hopelessLocked(n int64) bool {
	return b.capacity > 0 && n > b.capacity+b.rule.Limit.Borrow
}

// lacksLocked is about when the whole bucket has n units, as far as it is known here and if nobody else asks, where
// more than one is asked for: what the store says is of the first. What others have given back by then is not in it.
func (b *book) lacksLocked(now, n int64) int64 {
	if n == 1 || b.slots || b.hopelessLocked(n) || b.answeredAt == 0 {
		return 0
	}
	left := b.leftLocked(now)
	lacks, reset := n-left-b.rule.Limit.Borrow, max(b.resetAt-now, 0)
	switch {
	case lacks <= 0:
		return 0
	case b.length > 0: // a window gains nothing before its end
		return reset
	case !b.refills():
		return reset // by then all that was used has faded; when so much has, is not known here
	case left == 0: // or less, for a bucket may be overdrawn: when all is back is known
		return max(reset-b.refillTakes(b.capacity+b.rule.Limit.Borrow-n), b.refillTakes(lacks))
	}
	return b.refillTakes(lacks)
}

// refills reports whether the whole bucket gains its rate all the time.
func (t *terms) refills() bool {
	return t.rule.Limit.Algorithm == limit.TokenBucket || t.rule.Limit.Algorithm == limit.LeakyBucket
}

// refillTakes is how many microseconds the whole bucket takes to gain n units.
func (t *terms) refillTakes(n int64) int64 {
	return int64(min(math.Ceil(float64(n)*float64(t.rate.Per.Microseconds())/float64(t.rate.Units)), 1<<53))
}

// trickleTakesLocked is how many microseconds after its last credit the trickle, which is not 0, has
// brought n tokens, what it pays first included.
func (b *book) trickleTakesLocked(n int64) int64 {
	missing := float64(n+b.debt)*limit.Micro - float64(b.level%limit.Micro)
	return int64(min(math.Ceil(missing*1e6/float64(b.trickle)), 1<<53))
}

// Collect returns the units admitted and denied since the last Collect, for the
// ledger's rows. It never returns an admitted unit twice, nor one that a request
// under way may still put back.
func (of *Bucket) Collect() (admitted, denied int64) {
	b := of.open(new(hand))
	defer b.close()
	return b.collectLocked()
}

func (b *book) collectLocked() (admitted, denied int64) {
	b.foldLocked()
	if a := b.cell.admitted(); a > b.collectedAdmitted {
		admitted = a - b.collectedAdmitted
		b.collectedAdmitted = a
	}
	if d := b.cell.denied(); d > b.collectedDenied {
		denied = d - b.collectedDenied
		b.collectedDenied = d
	}
	b.restLocked()
	return admitted, denied
}

// State is a snapshot for answers' headers and for operators.
type State struct {
	Tokens    int64 // spendable here now
	Remaining int64 // in the whole bucket, as the server last told, less what was spent here since
	ResetIn   int64 // microseconds until it is full or its window turns
	Live      bool
	Expires   int64
	Trickle   int64
	Waiting   int64 // units that requests wait for
	InUse     int64 // slots that requests have
}

// State returns a snapshot at now.
func (of *Bucket) State(now int64) State {
	b := of.open(new(hand))
	defer b.close()
	s := State{
		Tokens: b.cell.units() + b.aside, Remaining: b.leftLocked(now),
		Live: b.live, Expires: b.expires, Trickle: b.trickle, Waiting: b.waitingLocked(),
	}
	s.ResetIn = b.resetInLocked(now, s.Remaining)
	if b.slots {
		s.Tokens += b.cell.due()
		s.InUse = b.cell.inUse()
	}
	return s
}
