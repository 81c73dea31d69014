package bucket

import (
	"sync"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// Bucket is an agent's copy of one bucket. Any number of requests may call Take, Try, Hold, Release, PutBack and Shut
// at once; these take no mutex. All else holds it for some tens of nanoseconds.
//
// All times are microseconds of the caller's monotonic clock. State that few buckets have at a time is in rare.
type Bucket struct {
	*Terms // the limit
	*rare  // &none unless the mutex is held or something of it is in use
	stock
	mu latch

	// The lease.

	trickle    int64 // micro-tokens a second
	room       int64 // most tokens that may be there after a refill from the trickle; most slots that may lie idle
	last       int64 // the trickle is credited up to this time
	level      int64 // micro-tokens left then, in the cell and aside, with the fraction of a token
	voidAt     int64 // when some units last found no room; 0 for never
	expires    int64 // before the first lease: when to tell of what was admitted on credit
	renewAt    int64 // when to renew without any further reason
	denyUntil  int64 // the store said to deny until then
	generation int64 // of the bucket in the store, as last granted
	granted    int64 // the most that the lease of the last answer lets it spend
	remaining  int64 // the server's estimate for the whole bucket
	resetAt    int64 // when the whole bucket is full, or its window turns
	spentBase  int64 // units admitted that remaining does not count any more

	// The conversation with the store.

	number       int64 // of the last renewal made
	checked      int64 // units asked for until the last check
	lastAsk      int64 // when the last renewal was made
	answeredAt   int64 // when the last renewal that was answered was sent; 0 for none
	toldAdmitted int64 // admitted and denied units up to the last renewal made
	toldDenied   int64

	collectedAdmitted, collectedDenied int64 // what was handed to the ledger's rows

	apart    int32   // units of the lease that lie aside; see aside
	turns    int32   // renewals of the conversation, less one
	lasts    uint32  // of the lease, at most; see term
	looked   int32   // when demand was last held against rate, after lastAsk
	demand   float32 // units asked for a second, as of the last renewal
	fallback float32 // micro-tokens a second, for out of contact; see lone.go
	active   uint32  // when something was last collected, in grains
	void     uint32  // quarters of a unit that found no room; see aside.go

	found     uint8  // see aside.go
	credit    uint8  // units that may be admitted before the first grant
	alone     bool   // out of contact it goes on with its fallback
	mayWait   uint8  // requests that may yet wait for the fallback
	live      bool   // false before the first grant and after the lease's end
	dry       bool   // as last told, the whole bucket had no slot left
	failed    bool   // the last renewal was not answered
	free      bool   // on_outage admitted units without a lease, and no answered renewal told of them
	met       bool   // there was a grant
	gone      bool   // the last renewal gave all back
	strain    strain // under which the lease was asked for
	ended     bool   // the lease ended by itself: it was not given back
	early     bool   // renew before renewAt
	stopped   bool   // the last check found that demand stopped
	spans     bool   // it is of windows or slots: the span is in use
	unchecked bool   // demand is not held against rate before the next renewal
}

// strain is how strained the agent was when it asked for a lease.
type strain uint8

const (
	calm strain = iota
	strained
	heavy
)

func strainOf(n int64) strain {
	switch {
	case lease.Heavy(n):
		return heavy
	case n > 1:
		return strained
	}
	return calm
}

// rare is what few buckets have at a time.
type rare struct {
	span
	reserves
	queue
	ask  *pendingRenewal // the renewal under way; nil for none
	line Line

	debt   int64 // tokens spent that a grant had taken back already; slots in use beyond those granted
	unitAt int64 // when the whole bucket has a unit, where that is later than denyUntil; 0 otherwise
	// unleased is units given out without a lease. Slots: by on_outage, since the last answer. Other units: used
	// already, and not told by a renewal. The next lease is to pay for them; outside includes them.
	unleased int64
	nobodys  int64 // nobody's units that were admitted and no answered renewal told of, less those that came back
	hopeless int64 // units refused for being more than the capacity: no demand that a lease could serve

	untold, untoldDenied   int64 // the part of toldAdmitted and toldDenied that no answered renewal told of
	unrowed, unrowedDenied int64 // collected units that are in no row of the ledger
	least                  int32 // before denyUntil, requests of fewer units ask all the same
	touched                uint8 // units admitted on credit before the first grant, at most credit
}

// none is the rare of buckets that have nothing of it. Nobody writes it.
var none rare

// rares are empty rares, to be used again.
var rares = sync.Pool{New: func() any { return new(rare) }}

// enter takes the mutex and gives the bucket a rare of its own, to be written: defer b.enter().leave().
func (b *Bucket) enter() *Bucket {
	b.mu.Lock()
	if b.rare == &none {
		b.rare = rares.Get().(*rare)
	}
	return b
}

// leave gives the rare up if there is nothing in it, and releases the mutex.
func (b *Bucket) leave() {
	if until := b.untilLocked(); until != b.Until() {
		b.stock.common().until.Store(until)
	}
	if *b.rare == none {
		rares.Put(b.rare)
		b.rare = &none
	}
	b.mu.Unlock()
}

// Init makes of b a bucket of these terms without a lease. Its first request waits for one, unless the limit only
// counts, or has credit for so many agents; 0 for not known. at is the journal's cell, in which a crash loses
// nothing of what it counts; nil for none. crowded says that there are a great many buckets.
func (b *Bucket) Init(t *Terms, at *Cell, crowded bool, agents, now int64) {
	b.rare = &none
	b.stock.shared.Store(&unshared)
	if at != nil {
		b.stock.Hot, b.in = &at.Hot, inCell
	} else {
		b.stock.Hot = newHot(crowded)
	}
	defer b.enter().leave()
	b.goByLocked(t)
	b.credit = t.credit.Of(agents)
	if b.counting {
		b.stock.credit(endless)
	}
	if now > 0 {
		b.active = grains(now)
	}
}

// endless is the stock of a bucket that only counts: more than a process can spend, and far enough from overflow.
const endless = 1 << 60

// goByLocked puts other terms into force.
func (b *Bucket) goByLocked(t *Terms) {
	if b.Terms = t; b.slots {
		b.spans = true
		b.stock.common() // requests give back without the mutex
	}
}

// Cell is the journal's cell of the bucket; nil for none.
func (b *Bucket) Cell() *Cell { return b.stock.mapped() }

// Inherit adds to the units taken for tenants below the bucket's own, between a Hold and its Release.
func (b *Bucket) Inherit(n int64) { b.elsewhere().inherited.Add(n) }

// Excuse says that n units that the bucket refused are not denied by it.
func (b *Bucket) Excuse(n int64) { b.elsewhere().excused.Add(n) }

// elsewhere is stock.elsewhere, to be written by a request.
func (b *Bucket) elsewhere() *elsewhere {
	if b.stock.mapped() == nil {
		return &b.sharing().elsewhere
	}
	return b.stock.elsewhere()
}

// sharing is stock.common, for a request.
func (b *Bucket) sharing() *shared {
	if s := b.stock.shared.Load(); s != &unshared {
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stock.common()
}

// term is how long the lease lasts. It is capped above an hour.
func (b *Bucket) term() int64 { return int64(b.lasts) }

// aside is how many units of the lease lie aside, not in the cell.
func (b *Bucket) aside() int64 { return int64(b.apart) }

// idle is how many units the bucket holds that no request has in hand.
func (b *Bucket) idle() int64 { return b.stock.due() + b.stock.units() + b.aside() }

// answered and answeredDenied are toldAdmitted and toldDenied as of the last renewal that was answered.
func (b *Bucket) answered() int64       { return b.toldAdmitted - b.untold }
func (b *Bucket) answeredDenied() int64 { return b.toldDenied - b.untoldDenied }

// grain is what active counts, in microseconds: idleness is of many seconds.
const grain = 1 << 18

func grains(now int64) uint32 { return uint32(now/grain) + 1 }

// idleFrom is since when nothing was collected.
func (b *Bucket) idleFrom() int64 { return int64(b.active) * grain }

// foldLocked pays debts with units that came back, makes the rest spendable, and returns all units spendable now.
func (b *Bucket) foldLocked() int64 {
	b.payLocked()
	return b.stock.fold()
}

// inHandLocked reports whether requests have units of the bucket in hand, wait for some, or left it a debt.
func (b *Bucket) inHandLocked() bool {
	return b.waiters != nil || b.reservedLocked() > 0 || b.chargedLocked() || b.slots && b.stock.inUse() > 0
}

// onCreditLocked reports whether units were admitted on credit that no answered renewal told of.
func (b *Bucket) onCreditLocked() bool { return b.touched > 0 && !b.met }
