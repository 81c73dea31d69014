package bucket

import (
	"sync"

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
func (b *Bucket) deniesUntilLocked() int64 {
	if b.live && b.trickle > 0 {
		return b.denyUntil
	}
	return min(b.denyUntil, b.lastAsk+askAgain)
}

// outageWait is how long to stay away from what is denied because the server is, in microseconds.
const outageWait = 1_000_000

// Bucket is an agent's copy of one bucket. Take, Hold, Release, PutBack and Shut may be called by any number of requests at
// once and take no mutex. All else takes it for some tens of nanoseconds.
//
// All times are microseconds of one monotonic clock, the caller's. There may be millions of buckets, so bytes count: what few
// have at a time is in rare, and what is known from other fields is not kept.
type Bucket struct {
	*Terms // what it goes by
	*rare  // what few have; written only after own
	stock
	mu latch

	leased
	told
	counted
	flags

	apart  int32   // units of the lease that are not in the cell, but lie aside
	turns  int32   // renewals of the conversation, less one
	lasts  uint32  // of the lease, at most; see term
	looked int32   // when demand was last held against rate, after lastAsk
	demand float32 // units asked for a second, as of the last renewal
	active uint32  // when something was last collected, in grains
}

// flags are what is true or false of a bucket.
type flags struct {
	live      bool // false before the first grant and after the lease's end
	dry       bool // as last told, the whole bucket had no slot left
	failed    bool // nobody answered of late
	free      bool // units were admitted on outage, without any lease, that no answered renewal told of
	met       bool // there was a grant
	gone      bool // the last renewal gave all back
	strained  bool // the lease was asked for under strain
	heavy     bool // and that was heavy
	ended     bool // the lease ended by itself: it was not given back
	early     bool // renew before renewAt
	stopped   bool // the last check found that demand stopped
	spans     bool // it is of windows or slots: the span is in use
	unchecked bool // demand is not held against rate before the next renewal
	alone     alone
}

// alone is how a bucket with windows goes on out of contact.
type alone uint8

const (
	inContact alone = iota
	onRest          // with its share of what remained of the window
	onShare         // with its share of a further one
)

// leased is the lease.
type leased struct {
	trickle    int64 // micro-tokens a second
	room       int64 // most tokens that may be there after a refill from the trickle; most slots that may lie idle
	last       int64 // the trickle is credited up to this time
	level      int64 // micro-tokens that were left then, of whole ones in the cell and aside, and of one that is not whole yet
	void       void
	voidAt     int64 // when some units last found no room; 0 for never
	expires    int64 // before the first lease: when to tell of what was admitted on credit
	renewAt    int64 // when to renew without any further reason
	denyUntil  int64
	generation int64
	granted    int64 // the most that the lease of the last answer lets it spend
	remaining  int64 // the server's estimate for the whole bucket, and when it was made
	resetAt    int64
	spentBase  int64 // units admitted that remaining does not count any more
}

// told is the conversation with the store.
type told struct {
	number       int64 // of the last renewal made
	checked      int64 // units asked for until the last check
	lastAsk      int64
	answeredAt   int64 // when the last renewal that was answered was sent; 0 for none
	toldAdmitted int64 // admitted and denied units up to the last renewal made
	toldDenied   int64
}

// counted is what was handed to the ledger's rows.
type counted struct{ collectedAdmitted, collectedDenied int64 }

// rare is what few buckets have at a time.
type rare struct {
	span
	reserves
	ask   *pendingRenewal
	queue *queue // nil when nobody waits
	line  Line

	debt   int64 // tokens spent that a grant had taken back already; slots in use beyond those granted
	unitAt int64 // when the whole bucket has a unit, where that is later than denyUntil; 0 otherwise
	// unleased is what was given out without a lease: of slots, by on_outage since the last answer; of all else, what was used already,
	// the next lease is to pay for and no renewal has told of. That is in outside meanwhile.
	unleased int64
	nobodys  int64 // units admitted that were nobody's, and that no answered renewal told of, less those that came back
	hopeless int64 // units refused for being more than the capacity, no demand that a lease could serve

	untold, untoldDenied   int64 // of toldAdmitted and toldDenied, what no answered renewal told of
	unrowed, unrowedDenied int64 // of what was collected, what is in no row of the ledger's
	least                  int32 // before denyUntil, requests of fewer units ask all the same
	touched                uint8 // units admitted on credit before the first grant, at most mostTouched
}

// none is what buckets have that have nothing of it. Nobody writes it.
var none rare

// rares are none's any more, to be used again: each renewal under way needs one.
var rares = sync.Pool{New: func() any { return new(rare) }}

// own returns the bucket's own rare, to be written.
func (b *Bucket) own() *rare {
	if b.rare == &none {
		b.rare = rares.Get().(*rare)
	}
	return b.rare
}

// leave gives up what few have, if nothing of it is needed any more, and releases the mutex.
func (b *Bucket) leave() {
	if b.rare != &none && *b.rare == none {
		rares.Put(b.rare)
		b.rare = &none
	}
	b.mu.Unlock()
}

// shared is what requests and the owner share besides hot, where that is needed. It is never given up.
type shared struct {
	shutUntil counter // see Shut; written under the mutex
	shutRetry counter // when one unit may be there, as of then
	finished  counter // slots given back by requests that came to their end
	folded    counter // units put back and slots given back that are spendable again, or nobody's; written under the mutex
	inherited counter // see cell; of a bucket without one
	excused   counter // likewise
	// patient counts the requests that wait their turn, so that one which gives back
	// sees them without the mutex. It is written under it.
	patient flag
	keep    flag // more slots than this lying idle are a surplus that the owner has not noticed
}

// New returns a bucket that goes by these terms and has no lease: its first request waits for one, unless the limit only
// counts. at is where a crash takes nothing of what it counts; nil for none. crowded says that there are a great many.
func New(t *Terms, at *Cell, crowded bool, now int64) *Bucket {
	b := new(Bucket)
	b.Init(t, at, crowded, now)
	return b
}

// Of is New of a limit that no tenant is known to hold, alone.
func Of(l *limit.Limit) *Bucket { return New(TermsAlone(l), nil, false, 0) }

// Init is New of what is part of something larger.
func (b *Bucket) Init(t *Terms, at *Cell, crowded bool, now int64) {
	b.rare = &none
	b.stock.init(at, crowded)
	b.mu.Lock()
	defer b.leave()
	b.goByLocked(t)
	if b.counting {
		b.stock.credit(endless)
	}
	if now > 0 {
		b.activeLocked(now)
	}
}

// goByLocked goes by other terms from now on.
func (b *Bucket) goByLocked(t *Terms) {
	if b.Terms = t; b.slots {
		b.spans = true
		b.stock.common() // requests give back without the mutex
	}
}

// term is how long the lease lasts, or more than an hour.
func (b *Bucket) term() int64 { return int64(b.lasts) }

// aside is how many units of the lease are not in the cell, but lie aside.
func (b *Bucket) aside() int64 { return int64(b.apart) }

// answered and answeredDenied are toldAdmitted and toldDenied as of the last renewal that was answered.
func (b *Bucket) answered() int64       { return b.toldAdmitted - b.untold }
func (b *Bucket) answeredDenied() int64 { return b.toldDenied - b.untoldDenied }

// hearLocked notes up to which counts the store was told.
func (b *Bucket) hearLocked(admitted, denied int64) {
	untold, untoldDenied := b.toldAdmitted-admitted, b.toldDenied-denied
	if untold != b.untold || untoldDenied != b.untoldDenied {
		r := b.own()
		r.untold, r.untoldDenied = untold, untoldDenied
	}
}

// oweLocked says what is owed.
func (b *Bucket) oweLocked(n int64) {
	if n != b.debt {
		b.own().debt = n
	}
}

// activeLocked notes that the bucket was in use.
func (b *Bucket) activeLocked(now int64) { b.active = uint32(now/grain) + 1 }

// grain is what active counts, in microseconds: idleness is of many seconds.
const grain = 1 << 18

// idleFrom is since when nothing was collected.
func (b *Bucket) idleFrom() int64 { return int64(b.active) * grain }

// Take removes n units (at least 1) if they are there: one atomic subtraction
// for a single unit. On false the caller asks Slow with the same n.
func (b *Bucket) Take(n int64) bool { return take(&b.tokens, n) }

// Try is Take for a request that asks again: it leaves no trace of a refusal.
func (b *Bucket) Try(n int64) bool { return takeQuietly(&b.tokens, n) }

// Cell is where a journal has what the bucket counts; nil where none has.
func (b *Bucket) Cell() *Cell { return b.stock.mapped() }

// Hot is what requests touch of the bucket.
func (b *Bucket) Hot() *Hot { return b.stock.Hot }

// Hold announces that n units about to be taken may be put back, because another
// limit of the request is asked later. Each Hold is followed by one Release,
// after PutBack where the units were taken and went back. Only a bucket whose
// units are billed needs it, and only where it is not the last to be asked.
func (b *Bucket) Hold(n int64) { b.pending.Add(n) }

// Release ends a Hold.
func (b *Bucket) Release(n int64) { b.pending.Add(-n) }

// PutBack returns n units that were taken for a request that another limit denied.
// They are spendable again at the next refill: taken once, put back once, never
// handed out twice.
func (b *Bucket) PutBack(n int64) { b.back.Add(n) }

// Inherit raises or lowers the units taken for tenants below the bucket's own, between a
// Hold of as many and its Release.
func (b *Bucket) Inherit(n int64) {
	if c := b.stock.mapped(); c != nil {
		c.inherited.Add(n)
		return
	}
	b.sharing().inherited.Add(n)
}

// Excuse says that n units that the bucket refused are not denied by it.
func (b *Bucket) Excuse(n int64) {
	if c := b.stock.mapped(); c != nil {
		c.excused.Add(n)
		return
	}
	b.sharing().excused.Add(n)
}

// sharing is stock.common, for a request.
func (b *Bucket) sharing() *shared {
	if s := b.stock.shared.Load(); s != nil {
		return s
	}
	b.mu.Lock()
	defer b.leave()
	return b.stock.common()
}

// foldLocked is stock.fold, after what came back has paid what is owed: units spent beyond the
// lease, slots in use beyond it. Slots that come back without a lease are nobody's.
func (b *Bucket) foldLocked() int64 {
	b.payLocked()
	return b.stock.fold()
}

// Slow decides what Take(n) could not: it refills the cell from the trickle and
// tries again. lost says that the server is out of contact. The verdict is Wait
// when only a renewal can tell, or, where the limit says so, when the request's
// turn has not come.
func (b *Bucket) Slow(now, n int64, lost bool) Verdict { return b.Ask(now, n, lost, false) }

// Ask is Slow for a request that, if patient, waits its turn instead of being denied:
// enqueue a Waiter that is.
func (b *Bucket) Ask(now, n int64, lost, patient bool) Verdict {
	b.mu.Lock()
	defer b.leave()
	return b.askLocked(now, n, lost, patient)
}

func (b *Bucket) askLocked(now, n int64, lost, patient bool) Verdict {
	patient = patient || b.queues
	b.foldLocked()
	ended := !b.live
	b.expireLocked(now, lost)
	again := ended && b.live // out of contact it goes on, and the owner, who had no more to do with it, has to see it end
	have := int64(0)
	if b.patients() == 0 { // those who wait their turn come first
		have = b.refillLocked(now)
		if b.stock.takeQuietly(n) {
			b.levelLocked(have - n) // gone already
			b.putAsideLocked(now)
			b.noteLowLocked(now, have)
			if b.stock.units()+b.aside() == 0 {
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
		b.stock.refuse(n)
		b.own().hopeless += n
		return Verdict{Outcome: Denied, Never: true}
	case b.touchLocked(now, n):
		return Verdict{Outcome: Admitted, Attend: true}
	case patient && !(lost && b.stuckLocked()):
		return Verdict{Outcome: Wait}
	case b.deniesLocked(now, n, lost):
		b.stock.refuse(n)
		if b.paced && !lost {
			b.noteLowLocked(now, have) // it asks for a larger trickle, if there is one
		}
		b.shutLocked(now, lost)
		return Verdict{Outcome: Denied, RetryAfter: b.retryAfterLocked(now, n, lost), Attend: b.early || again}
	case b.queue != nil && len(b.queue.waiters)-b.patients() >= maxWaiting:
		b.stock.refuse(n)
		return Verdict{Outcome: Denied}
	}
	return Verdict{Outcome: Wait}
}

// deniesLocked reports whether n units that are not here are denied without asking: the store said so, nobody is there to be asked, or
// the trickle alone says when.
func (b *Bucket) deniesLocked(now, n int64, lost bool) bool {
	said := now < b.deniesUntilLocked() && n >= int64(b.least)
	return said || lost || b.paced && b.live && b.trickle > 0
}

// overLocked reports whether there is no lease to go on with while the server is away: none is live, or the term of
// the one that is has ended, and nothing comes of it any more.
func (b *Bucket) overLocked(now int64) bool {
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
func (b *Bucket) outageLocked(n int64) Verdict {
	if b.onOutage == limit.OutageOpen {
		b.admitFreeLocked(n)
		first := !b.free
		b.free = true
		if b.slots {
			b.own().unleased += n
		}
		return Verdict{Outcome: Admitted, Attend: first}
	}
	b.stock.refuse(n)
	return Verdict{Outcome: Denied, RetryAfter: outageWait}
}

// admitLocked admits n units whether or not they are there: they are spent at once and
// never in tokens, so that no one else can take them.
func (b *Bucket) admitLocked(n int64) {
	b.stock.admit(n)
	if b.slots {
		b.oweLocked(b.debt + n) // what comes back of them is nobody's
	}
}

// admitFreeLocked is admitLocked for a request that another limit may still deny: then n units come back that were nobody's, and are
// to be nobody's again.
func (b *Bucket) admitFreeLocked(n int64) {
	b.admitLocked(n)
	if !b.slots && !b.counting {
		b.own().nobodys += n
	}
}
