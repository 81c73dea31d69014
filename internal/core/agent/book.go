package agent

import (
	"sync"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// alone is how a bucket with windows goes on out of contact.
type alone uint8

const (
	inContact alone = iota
	onRest          // with its share of what remained of the window
	onShare         // with its share of a further one
)

// terms are what a bucket takes from its limit. They are shared by all buckets of the scope, and by those of all tenants that have
// the plan's limit as it is; they are never written.
type terms struct {
	rule     *limit.Rule // which many tenants share; what it says of rate and burst is
	rate     limit.Rate
	burst    int64
	onOutage limit.Outage
	counting bool  // no rate: nothing is leased
	slots    bool  // units are slots, which requests give back
	queues   bool  // requests wait their turn unless they say otherwise
	paced    bool  // what cannot leave at once is denied, not asked for
	touch    bool  // the first units are admitted on credit
	exact    bool  // strict: its leases are never lax
	soft     bool  // what is denied may be admitted above it
	most     int16 // requests that may wait their turn
	anewIn   int16 // seconds after a lease's end from which the conversation begins anew; 0 for never
	capacity int64 // the most units that the whole bucket ever holds; 0 where no request is refused for that
}

func termsOf(h *limit.Held) *terms {
	l := &h.Rule.Limit
	t := &terms{
		rule: h.Rule, rate: h.Rate, burst: h.Burst,
		onOutage: l.OnOutage, counting: l.CountsOnly(), slots: l.Algorithm == limit.Concurrency, paced: l.Algorithm == limit.LeakyBucket,
		touch: l.FirstTouch == limit.TouchAdmit, most: int16(l.Queue), // at most limit.MaxQueue
		exact: l.EpsilonPPM == 0, soft: h.Rule.Overage() != nil,
		anewIn: anewAfter(l), capacity: CapacityOf(h),
	}
	t.queues = t.slots && l.Queue > 0
	if t.most == 0 {
		t.most = maxWaiting
	}
	return t
}

// termsAlone are those of a limit that no tenant is known to hold.
func termsAlone(l *limit.Limit) *terms {
	held := (&limit.Rule{Limit: *l}).Hold()
	return termsOf(&held)
}

// same reports whether they are of limits that say the same.
func (t *terms) same(o *terms) bool {
	return t.rate == o.rate && t.burst == o.burst && (t.rule == o.rule || t.rule.Limit.Like(&o.rule.Limit))
}

// goBy has the scope's buckets go by another limit, each from its follow on. All of them follow before the next.
func (s *Scope) goBy(t *terms) {
	s.edition = 1 - s.edition
	s.says(t)
}

// says has the scope's buckets, each of which follows already, go by these.
func (s *Scope) says(t *terms) {
	s.terms[s.edition].Store(t)
	s.now.Store(t)
}

// goesBy returns what the bucket takes from its limit. The owner's.
func (of *Bucket) goesBy() *terms {
	if of.has(odd) {
		return of.scope().terms[1].Load()
	}
	return of.scope().terms[0].Load()
}

// book is what a bucket knows besides its cell: the lease, the conversation with the store and what was told of it. It
// is packed while nobody has it in hand, unless requests wait, a renewal is under way or requests need it all the time: then
// it stays open. Whoever opens it holds the mutex until it is closed.
type book struct {
	*Bucket
	*terms
	cell stock

	live     bool // false before the first grant and after the lease's end
	dry      bool // as last told, the whole bucket had no slot left
	failed   bool // nobody answered of late
	free     bool // units were admitted on outage, without any lease, that no answered renewal told of
	met      bool // there was a grant
	gone     bool // the last renewal gave all back
	strained bool // the lease was asked for under strain
	heavy    bool // and that was heavy
	ended    bool // the lease ended by itself: it was not given back
	early    bool // renew before renewAt
	stopped  bool // the last check found that demand stopped
	spans    bool // it is of windows or slots: the span is in use
	alone    alone
	touched  uint8 // units admitted on credit before the first grant, at most mostTouched
	uses     uint8 // by requests since the last collection, at most mostUses and one
	least    int32 // before denyUntil, requests of fewer units ask all the same

	span

	// The lease.
	trickle    int64 // micro-tokens a second
	room       int64 // most tokens that may be there after a refill from the trickle; most slots that may lie idle
	last       int64 // the trickle is credited up to this time
	level      int64 // micro-tokens that were left then, of whole ones in the cell and aside, and of one that is not whole yet
	aside      int64 // units of the lease that are not in the cell, but lie aside
	void       void
	voidAt     int64 // when some units last found no room; 0 for never
	debt       int64 // tokens spent that a grant had taken back already; slots in use beyond those granted
	expires    int64 // before the first lease: when to tell of what was admitted on credit
	term       int64
	renewAt    int64 // when to renew without any further reason
	denyUntil  int64
	unitAt     int64 // when the whole bucket has a unit, where that is later than denyUntil; 0 otherwise
	generation int64
	remaining  int64 // the server's estimate for the whole bucket, and when it was made
	resetAt    int64
	spentBase  int64 // units admitted that remaining does not count any more

	// The conversation with the store.
	number       int64 // of the last renewal made
	began        int64 // the first number
	ask          *pendingRenewal
	asked        int64 // units asked for between the last two renewals, and within how long that was; see rate
	within       int64
	checkAt      int64 // when to hold demand against rate
	checked      int64 // units asked for until the last check
	checkedAt    int64
	lastAsk      int64
	toldAdmitted int64 // admitted and denied units up to the last renewal made
	toldDenied   int64
	// toldAdmitted and toldDenied as of the last renewal that was answered.
	answered, answeredDenied int64
	answeredAt               int64  // when that was sent; 0 for none
	granted                  int64  // the most that the lease of the last answer lets it spend
	queue                    *queue // nil when nobody waits

	collectedAdmitted, collectedDenied int64 // already handed to the ledger's rows
	rowed                              int64 // of what was collected, that booked, or of no interest to the ledger
	rowedDenied                        int64
	active                             int64 // when something was last collected, in grains

	line Line
	// unleased is what was given out without a lease: of slots, by on_outage since the last answer; of all else, what was used already,
	// the next lease is to pay for and no renewal has told of. That is in outside meanwhile.
	unleased int64
	nobodys  int64 // units admitted that were nobody's, and that no answered renewal told of, less those that came back
	hopeless int64 // units refused for being more than the capacity, no demand that a lease could serve
	reserves
}

// mostUses is how many requests may need the book between two collections before it stays open: what packing takes
// is little beside a request now and then, and much beside one that does not come past it.
const mostUses = 8

func (b *book) usedLocked() { b.uses = min(b.uses+1, mostUses+1) }

// restLocked has a book that few requests needed since the last collection be packed again.
func (b *book) restLocked() { b.uses = 0 }

// hand is where a book is unpacked to, beside it as it was: most looks at a bucket change nothing, and comparing takes less
// than packing.
type hand struct{ book, was book }

// open returns the book, in hand unless it is open already. The mutex is held until it is closed.
func (of *Bucket) open(h *hand) *book {
	of.mu.Lock()
	if b := of.openedLocked(); b != nil {
		return b
	}
	return of.takeInHandLocked(h)
}

// openedLocked returns the book where it is open already; nil otherwise.
func (of *Bucket) openedLocked() *book {
	s := of.seldom()
	if s == nil {
		return nil
	}
	b := s.book.Load()
	return b
}

// takeInHandLocked opens the book, which is not open.
func (of *Bucket) takeInHandLocked(h *hand) *book {
	b := of.unpackLocked(&h.book)
	h.was = *b
	return b
}

// unpackLocked unpacks the book to where there are zeros.
func (of *Bucket) unpackLocked(b *book) *book {
	b.Bucket, b.terms, b.cell = of, of.goesBy(), of.stock()
	b.unpack()
	of.working.set(b)
	return b
}

// close packs the book, if it is another by now and may rest, or has it stay open, and releases the mutex.
func (b *book) close() {
	of := b.Bucket
	if b.staysOpen() || b.changed() {
		b.putAway()
	}
	of.leave()
}

// changed reports whether a book in hand is another by now. Only of those: what stays open has none beside it.
func (b *book) changed() bool {
	h := (*hand)(unsafe.Pointer(b))
	return h.book != h.was
}

// closeChanged is close of a book that is another for certain, and in no hand.
func (b *book) closeChanged() {
	of := b.Bucket
	b.putAway()
	of.leave()
}

// staysOpen reports whether the book is one that stayed open.
func (b *book) staysOpen() bool {
	s := b.seldom()
	return s != nil && s.book.Load() == b
}

// putAway packs the book, or has it stay open.
func (b *book) putAway() {
	open := b.staysOpen()
	switch packed := b.rests() && b.pack(); {
	case packed && open:
		s := b.seldom()
		kept := s.book.Load() // which is b, but one in hand is not to be taken for one that leaves the stack
		s.book.Store(nil)
		*kept = book{}
		books.Put(kept)
	case !packed && !open:
		kept := books.Get().(*book)
		*kept = *b
		s := b.rarely()
		kept.cell.apart = s
		s.book.Store(kept)
	}
}

// leave gives up what few have, if nothing in it is needed, and releases the mutex.
func (of *Bucket) leave() {
	if s := of.seldom(); s != nil && s.idle() {
		of.from.Store(&s.scope.scoped)
	}
	of.working.set(nil)
	of.mu.Unlock()
}

// books are none's any more, to be used again: each renewal has one open until its answer.
var books = sync.Pool{New: func() any { return new(book) }}

// rests reports whether nobody is to need the book soon.
func (b *book) rests() bool { return b.ask == nil && b.queue == nil && b.uses <= mostUses }

// adoptLocked goes by the scope's terms from now on.
func (b *book) adoptLocked() {
	b.marks.set(odd, b.scope().edition == 1)
	b.terms = b.goesBy()
	if b.slots {
		b.spans = true
		b.rarely().stays.Store(true) // requests give back without the mutex
	}
}
