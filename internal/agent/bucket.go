package agent

import (
	"math"
	"sync/atomic"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/limit"
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
}

// endless is the stock of a bucket that only counts: more than can be spent in a
// life, and far enough from overflow.
const endless = 1 << 60

// askAgain is how long requests are denied without asking, whatever the store said, in microseconds: what
// was exhausted until a window's end may have some again, because another agent did not use what it
// had, a reservation was cancelled, or usage was corrected. One request a minute pays for it with a round trip.
const askAgain = 60_000_000

// alone is how a bucket with windows goes on out of contact.
type alone uint8

const (
	inContact alone = iota
	onRest          // with its share of what remained of the window
	onShare         // with its share of a further one
)

// Bucket is an agent's copy of one bucket. Take, Commit and PutBack may be called by
// any number of requests at once, as may Slow; the others are for the owner's loop, and
// everything but Take, Commit and PutBack takes the mutex for some tens of nanoseconds.
//
// All times are microseconds of one monotonic clock, the caller's.
type Bucket struct {
	// cell is apart: what requests touch lies close together (Entry), and could be mapped from a file.
	cell stock
	// What a denial without the mutex reads lies beside it.
	shutUntil counter // see Shut; written under the mutex
	shutRetry counter // when one unit may be there, as of then

	mu lock
	// What is one byte each lies together, for there may be millions of buckets (TestBytesPerBucket).
	onOutage limit.Outage
	counting bool  // no rate: nothing is leased
	slots    bool  // units are slots, which requests give back
	queues   bool  // requests wait their turn unless they say otherwise
	paced    bool  // what cannot leave at once is denied, not asked for
	touch    bool  // the first units are admitted on credit
	live     bool  // false before the first grant and after the lease's end
	dry      bool  // as last told, the whole bucket had no slot left
	failed   bool  // nobody answered of late
	met      bool  // there was a grant
	gone     bool  // the last renewal gave all back
	ended    bool  // the lease ended by itself: it was not given back
	alone    alone // since the last answer
	early    bool  // renew before renewAt
	durable  bool  // the cell outlives the process, and all is counted there; never written later
	stopped  bool  // the last check found that demand stopped
	touched  uint8 // units admitted on credit before the first grant, at most mostTouched
	most     int16 // requests that may wait their turn
	anewIn   int16 // seconds after a lease's end from which the conversation begins anew; 0 for never
	least    int32 // before denyUntil, requests of fewer units ask all the same
	// patient counts the requests that wait their turn, so that one which gives back
	// sees them without the mutex. It is written under it.
	patient  flag
	keep     flag  // more slots than this lying idle are a surplus that the owner has not noticed
	capacity int64 // the most units that the whole bucket ever holds; 0 where no request is refused for that

	*span // of windows and slots; noSpan without

	// The lease.
	trickle    int64 // micro-tokens a second
	room       int64 // most tokens that may be there after a refill from the trickle; most slots that may lie idle
	last       int64 // the trickle is credited up to this time
	fraction   int64 // micro-tokens credited beyond whole tokens
	debt       int64 // tokens spent that a grant had taken back already; slots in use beyond those granted
	expires    int64 // before the first lease: when to tell of what was admitted on credit
	term       int64
	renewAt    int64 // when to renew without any further reason
	denyUntil  int64
	generation int64
	remaining  int64 // the server's estimate for the whole bucket, and when it was made
	resetAt    int64
	spentBase  int64 // units admitted that remaining does not count any more

	// The conversation with the store.
	number       int64 // of the last renewal made
	began        int64 // the first number
	ask          *pendingRenewal
	rate         float64 // units asked for a second, as of the last renewal
	checkAt      int64   // when to hold demand against rate
	checked      int64   // units asked for until the last check
	checkedAt    int64
	lastAsk      int64
	seldom       atomic.Pointer[seldom] // nil where nothing of it was needed yet
	toldAdmitted int64                  // admitted and denied units up to the last renewal made
	toldDenied   int64
	// toldAdmitted and toldDenied as of the last renewal that was answered.
	answered, answeredDenied int64
	answeredAt               int64  // when that was sent; 0 for none
	granted                  int64  // the most that the lease of the last answer lets it spend
	queue                    *queue // nil when nobody waits

	collectedAdmitted, collectedDenied int64 // already handed to the ledger's rows
}

// NewBucket returns a bucket for l without a lease: its first request waits for
// one, unless the limit only counts.
func NewBucket(l *limit.Limit) *Bucket {
	b := new(Bucket)
	b.init(l, new(cell))
	return b
}

func (b *Bucket) init(l *limit.Limit, c *cell) {
	b.cell.cell, b.counting, b.span = c, l.CountsOnly(), &noSpan
	b.adopt(l)
	if b.counting {
		b.cell.credit(endless)
	}
}

func (b *Bucket) adopt(l *limit.Limit) {
	b.onOutage, b.capacity = l.OnOutage, capacityOf(l)
	if b.slots = l.Algorithm == limit.Concurrency; b.slots {
		b.ownSpanLocked()
	}
	b.paced = l.Algorithm == limit.LeakyBucket
	b.queues = b.slots && l.Queue > 0
	b.touch = l.FirstTouch == limit.TouchAdmit
	b.anewIn = anewAfter(l)
	if b.most = int16(l.Queue); b.most == 0 { // at most limit.MaxQueue
		b.most = maxWaiting
	}
}

// foldLocked is cell.fold, after what came back has paid what is owed: units spent beyond the
// lease, slots in use beyond it. Slots that come back without a lease are nobody's.
func (b *Bucket) foldLocked() int64 {
	b.payLocked()
	return b.cell.fold()
}

// Take removes n units (at least 1) if they are there: one atomic subtraction
// for a single unit. On false the caller asks Slow with the same n.
func (b *Bucket) Take(n int64) bool { return b.cell.take(n) }

// Hold announces that n units about to be taken may be put back, because another
// limit of the request is asked later. Each Hold is followed by one Release,
// after PutBack where the units were taken and went back. Only a bucket whose
// units are billed needs it, and only where it is not the last to be asked.
func (b *Bucket) Hold(n int64) { b.cell.pending.Add(n) }

// Release ends a Hold.
func (b *Bucket) Release(n int64) { b.cell.pending.Add(-n) }

// PutBack returns n units that were taken for a request that another limit denied.
// They are spendable again at the next refill: taken once, put back once, never
// handed out twice.
func (b *Bucket) PutBack(n int64) { b.cell.back.Add(n) }

// Slow decides what Take(n) could not: it refills the cell from the trickle and
// tries again. lost says that the server is out of contact. The verdict is Wait
// when only a renewal can tell, or, where the limit says so, when the request's
// turn has not come.
func (b *Bucket) Slow(now, n int64, lost bool) Verdict { return b.Ask(now, n, lost, false) }

// Ask is Slow for a request that, if patient, waits its turn instead of being denied:
// enqueue a Waiter that is.
func (b *Bucket) Ask(now, n int64, lost, patient bool) Verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	patient = patient || b.queues
	b.foldLocked()
	b.expireLocked(now, lost)
	have := int64(0)
	if b.patient.Load() == 0 { // those who wait their turn come first
		have = b.refillLocked(now)
		if b.cell.takeQuietly(n) {
			b.noteLowLocked(now, have)
			return Verdict{Outcome: Admitted, Attend: b.early}
		}
	}
	switch {
	case lost && !b.live:
		return b.outageLocked(n)
	case b.capacity > 0 && n > b.capacity:
		// Asking would bring all that there is here, where it is of no use.
		b.cell.refused.Add(n)
		b.rarely().hopeless += n
		return Verdict{Outcome: Denied}
	case b.touchLocked(now, n):
		return Verdict{Outcome: Admitted, Attend: true}
	case patient && !(lost && b.stuckLocked()):
		return Verdict{Outcome: Wait}
	case now < b.denyUntil && n >= int64(b.least) && now < b.lastAsk+askAgain, lost, b.paced && b.live && b.trickle > 0:
		b.cell.refused.Add(n)
		if b.paced && !lost {
			b.noteLowLocked(now, have) // it asks for a larger trickle, if there is one
		}
		b.shutLocked(now, lost)
		return Verdict{Outcome: Denied, RetryAfter: b.retryAfterLocked(now, n), Attend: b.early}
	case b.queue != nil && len(b.queue.waiters)-int(b.patient.Load()) >= maxWaiting:
		b.cell.refused.Add(n)
		return Verdict{Outcome: Denied}
	}
	return Verdict{Outcome: Wait}
}

// shutLocked notes how long one unit is denied for certain: the store said to deny, and
// until then no trickle brings a whole token and no window turns.
func (b *Bucket) shutLocked(now int64, lost bool) {
	if lost || b.slots || b.paced || b.patient.Load() > 0 || now >= b.denyUntil || b.least > 1 {
		return
	}
	until := now + b.retryAfterLocked(now, 1)
	if b.length > 0 {
		until = min(until, b.turnAt)
	}
	b.shutRetry.Store(until)
	b.shutUntil.Store(min(until, b.lastAsk+askAgain))
}

// Shut denies one unit, whose Take failed, without the mutex where an earlier denial made it certain:
// denials are as many as a caller out of bounds likes. On false the caller asks Slow.
// It is not for a time without contact. The verdict is of the same moment as Slow's would be, but
// for units that the store grants meanwhile.
func (b *Bucket) Shut(now int64) (Verdict, bool) {
	until := b.shutUntil.Load()
	if now >= until || b.cell.due() != 0 {
		return Verdict{}, false
	}
	if s := b.seldom.Load(); s != nil && s.denials.Load() != nil {
		s.denials.Load().add()
	} else if n := b.cell.refused.Add(1); n%denialsFrom == 0 && !b.durable {
		b.countApart()
	}
	return Verdict{Outcome: Denied, RetryAfter: max(b.shutRetry.Load()-now, 1)}, true
}

// outageLocked answers for a bucket without a live lease while the server is away.
func (b *Bucket) outageLocked(n int64) Verdict {
	if b.onOutage == limit.OutageOpen {
		b.admitLocked(n)
		return Verdict{Outcome: Admitted}
	}
	b.cell.refused.Add(n)
	return Verdict{Outcome: Denied, RetryAfter: 1_000_000}
}

// admitLocked admits n units whether or not they are there: they are spent at once and
// never in tokens, so that no one else can take them.
func (b *Bucket) admitLocked(n int64) {
	b.cell.admit(n)
	if b.slots {
		b.debt += n // what comes back of them is nobody's
	}
}

// refillLocked credits the trickle up to now and returns the spendable units.
func (b *Bucket) refillLocked(now int64) int64 {
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
	gained += b.fraction
	tokens := gained / limit.Micro
	b.fraction = gained % limit.Micro
	if b.debt > 0 {
		pay := min(b.debt, tokens)
		b.debt -= pay
		tokens -= pay
	}
	if room := b.room - have; tokens > room {
		tokens = max(room, 0)
		b.fraction = 0
	}
	if tokens > 0 {
		b.cell.credit(tokens)
	}
	return have + tokens
}

// expireLocked ends a lease whose term is over. While the server is out of reach
// it goes on, and so it does while an answer is under way: its trickle was summed
// when it was granted, so all of them together still keep the limit for as long
// as the outage lasts, and a store holds an unrenewed lease's share for one term more.
func (b *Bucket) expireLocked(now int64, lost bool) {
	b.turnLocked(now, lost)
	if !b.live || now < b.expires || lost || b.ask != nil {
		return
	}
	if now < b.keptLocked() && (b.trickle > 0 || b.cell.units()+b.cell.due() > 0 || b.reservedLocked() > 0) {
		b.early = true // its renewal is late by no more than the store waits for it
		return
	}
	b.voidLocked()
	b.ended = true
}

// keptLocked returns until when a lease that was not renewed in time may be all the same, and nothing of it is
// lost: the store keeps its share for a term after its end.
func (b *Bucket) keptLocked() int64 { return b.expires + b.term/2 }

// voidLocked ends the lease: what is left of it can no longer be spent.
func (b *Bucket) voidLocked() {
	b.live = false
	b.trickle, b.room, b.debt = 0, 0, 0
	if b.next != 0 {
		b.next = 0
	}
	b.cell.credit(-b.foldLocked())
}

// turnLocked ends what is left of a window that is over. Out of contact, the agent
// goes on with its share of what remained of the window, and the next
// one begins with its share of it: that of a lease which was live when
// contact was lost, or whose end came before the loss was noticed.
func (b *Bucket) turnLocked(now int64, lost bool) {
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
	b.window += n * b.length
	b.turnAt += n * b.length
	b.live, b.ended, b.alone = true, false, onShare
	b.cell.credit(b.share)
}

// noteLowLocked asks for an early renewal when the trickle no longer carries the
// demand, so that the next request need not wait.
func (b *Bucket) noteLowLocked(now, have int64) {
	if b.slots || now < b.denyUntil || now-b.lastAsk < max(earlyEvery, b.term/lowest) || have > b.room/4+1 || b.dry {
		return
	}
	b.early = true
}

// retryAfterLocked is when n units may be there: from the trickle, or when asking
// makes sense again.
func (b *Bucket) retryAfterLocked(now, n int64) int64 {
	wait := max(b.denyUntil-now, 0)
	if b.live && b.trickle > 0 && n <= b.room {
		soon := b.trickleTakesLocked(n - b.cell.units() + b.missingLocked())
		if wait == 0 || soon < wait || b.paced { // which is not asked for: it comes
			wait = soon
		}
	}
	return max(wait, 1)
}

// trickleTakesLocked is how many microseconds after its last credit the trickle, which is not 0, has
// brought n tokens, what it pays first included.
func (b *Bucket) trickleTakesLocked(n int64) int64 {
	missing := float64(n+b.debt)*limit.Micro - float64(b.fraction)
	return int64(min(math.Ceil(missing*1e6/float64(b.trickle)), 1<<53))
}

// Collect returns the units admitted and denied since the last Collect, for the
// ledger's rows. It never returns an admitted unit twice, nor one that a request
// under way may still put back.
func (b *Bucket) Collect() (admitted, denied int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.foldLocked()
	if a := b.cell.admitted(); a > b.collectedAdmitted {
		admitted = a - b.collectedAdmitted
		b.collectedAdmitted = a
	}
	if d := b.denied(); d > b.collectedDenied {
		denied = d - b.collectedDenied
		b.collectedDenied = d
	}
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
func (b *Bucket) State(now int64) State {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := State{
		Tokens: b.cell.units(), Remaining: b.leftLocked(now), ResetIn: max(b.resetAt-now, 0),
		Live: b.live, Expires: b.expires, Trickle: b.trickle, Waiting: b.waitingLocked(),
	}
	if b.slots {
		s.Tokens += b.cell.due()
		s.InUse = b.cell.inUse()
	}
	return s
}
