package bucket

import (
	"math"
	"sync"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

const (
	// earlyEvery is the least time between two renewals that nobody waits for, in
	// microseconds: a few round trips.
	earlyEvery = 20_000
	// margin is taken off each term for the time that clocks and loops lose.
	margin = 2_000
	// checkEvery is how often a lease is held against its use at most, and checkLong the most time between
	// two checks of terms no longer than lease.LongTerm. Longer ones may be of so many buckets that looking at them takes more
	// than renewing them: there it is longChecks in a term, where what lies idle is missed by nobody so soon, and up to
	// scarceChecks where half of what the whole bucket has left makes up for less than that of the trickle here.
	checkEvery   = lease.ShortTerm / 4
	checkLong    = 500_000
	longChecks   = 4
	scarceChecks = 64
	// lowest is the part of a term within which a lease that runs low is renewed at
	// most once: a scarce bucket has no more to give before others have renewed theirs.
	lowest = 5
	checks = 16
	// quiet is how long after its last renewal a bucket of which nothing is left tells of that, if no request asked for more: before
	// the store's clock would go on without it (lease.MaxStep).
	quiet = 15_000_000
	// quota is the length of a window from which a request that comes while the edge is
	// under way waits some of a round trip rather than be denied. In shorter ones edges are so
	// many that nobody is to wait at them.
	quota = 60_000_000
)

// pendingRenewal is the renewal under way.
type pendingRenewal struct {
	number int64
	final  bool
	told   int64 // admitted and denied, as it said
	denied int64
	sentAt int64 // the term counts from here
	stock  int64 // what it gave back as held
	waited int64 // units that requests waited for
	// largest is the units of the largest of them.
	largest int64
	// reserved is units that it gave back as held, and asked for again, although requests have them.
	reserved int64
	inUse    int64 // slots that stay here whatever the answer
	window   int64 // that it spoke of
	void     int64 // quarters of units that had found no room by then
	unrun    int64 // of the lease that it ends: what its trickle would still have brought
	nobodys  int64 // as of then, which it told of: the store took them out, and what comes back of them is the bucket's
	alone    bool  // as it said

	// What the limit shrank to since it was sent; zero for not.
	shrunkStock, shrunkFlow fraction
	noNext                  bool // windows begin at other times since
}

func (p *pendingRenewal) shrink(stock, flow fraction) {
	p.shrunkStock, p.shrunkFlow = p.shrunkStock.and(stock), p.shrunkFlow.and(flow)
}

// renewals are of buckets that have none under way any more, to be used again: a lease's course is one after the other.
var renewals = sync.Pool{New: func() any { return new(pendingRenewal) }}

// endAskLocked ends the renewal under way.
func (b *Bucket) endAskLocked() {
	if b.ask != nil {
		renewals.Put(b.ask)
		b.own().ask = nil
	}
}

// Never is the time of a bucket that needs no attention.
const Never = math.MaxInt64

// Due returns when the bucket next needs a renewal: now or earlier when it does
// already, Never when nothing is leased and nobody waits.
func (b *Bucket) Due(now int64) int64 {
	b.mu.Lock()
	defer b.leave()
	return b.dueLocked(now)
}

func (b *Bucket) dueLocked(now int64) int64 {
	if b.counting {
		return Never
	}
	return min(b.dueLeaseLocked(now), b.dueQueueLocked(now), b.dueEdgeLocked(now), b.turnTimeLocked(now))
}

// Soon reports whether the renewal at the term's end is so near, within half of its lead, that it may as well
// go with others that are due now. A lease that may lapse is not renewed; slots and windows keep to their times.
func (b *Bucket) Soon(now int64) bool {
	b.mu.Lock()
	defer b.leave()
	return b.soonLocked(now) && (b.trickle > 0 || b.idle() > 0 || b.reservedLocked() > 0)
}

// soonLocked is Soon, whatever the lease holds.
func (b *Bucket) soonLocked(now int64) bool {
	return !b.counting && !b.slots && b.length == 0 && b.live && b.ask == nil && now >= b.renewAt-b.leadLocked(b.term())/2
}

// dueLeaseLocked is Due for the lease's sake.
func (b *Bucket) dueLeaseLocked(now int64) int64 {
	inUse := b.slots && b.stock.inUse() > 0
	switch {
	case b.ask != nil:
		return now
	case !b.live && b.free:
		return now
	case !b.live && inUse && !b.gone:
		return b.lastAsk + lease.ShortTerm // the store is to know of them
	case !b.live && b.touched > 0 && !b.met:
		return b.expires
	case !b.live && !b.gone && b.heldOutLocked():
		return b.lastAsk + quiet
	case !b.live:
		return Never
	}
	if b.trickle == 0 && b.idle() == 0 && !b.early && !inUse && b.next == 0 && b.reservedLocked() == 0 && b.debt == 0 {
		return b.expires // nothing to give back, nothing to tell, and nothing wanted: it may lapse
	}
	if now >= b.checkAtLocked() {
		b.checkLocked(now)
	}
	if b.noticedLocked() {
		if at := b.lastAsk + b.earlyEveryLocked(); now < at {
			return min(at, b.checkAtLocked(), b.renewAt)
		}
		if b.surplusLocked() { // still
			return now
		}
	}
	if b.early {
		return min(max(now, b.lastAsk+b.earlyEveryLocked()), b.renewAt)
	}
	return min(b.checkAtLocked(), b.renewAt)
}

// heldOutLocked reports whether the store takes some of what was spent for what is still out, and would have the bucket refill
// for no longer than leases last once it does not hear of it: what was granted for no request that waited. Windows do not refill.
func (b *Bucket) heldOutLocked() bool {
	return b.length == 0 && !b.slots && b.admittedLocked() > b.spentBase
}

// checkLocked asks for an early renewal when demand fell by more than half, and
// by more than noise, so that what is held here and no longer used reaches others.
func (b *Bucket) checkLocked(now int64) {
	b.topUpLocked(now)
	asked := b.admittedLocked() + b.deniedLocked()
	seen := float64(asked - b.checked)
	expected := b.rate() * float64(now-b.checkedAt()) / 1e6
	b.stopped = seen == 0 && expected >= stopped
	if seen == 0 && expected >= enough || expected-seen > expected/2+2*math.Sqrt(expected) || b.missedLocked(now, expected, seen) {
		b.early = true
	}
	b.checked, b.looked = asked, int32(min(now-b.lastAsk, math.MaxInt32))
}

// missedLocked reports whether demand fell by less than half, and that would use up half of what the whole bucket has left before the end of a
// term of minutes: others may ask for all of that.
func (b *Bucket) missedLocked(now int64, expected, seen float64) bool {
	fell := expected - seen
	return b.term() > lease.LongTerm && fell > expected/8+4*math.Sqrt(expected) &&
		fell*float64(b.renewAt-now) > float64(b.remaining/2)*float64(now-b.checkedAt())
}

// rate is the units asked for a second, as of the last renewal.
func (b *Bucket) rate() float64 { return float64(b.demand) }

// checkedAt is when demand was last held against rate.
func (b *Bucket) checkedAt() int64 { return b.lastAsk + int64(b.looked) }

// enough is how many units must be expected for a check to tell their absence from noise.
const enough = 3

// stopped is how many units must be expected for their absence to mean that demand stopped.
const stopped = 8

// checkAtLocked returns when to hold demand against rate next: Never where too
// little is expected for a check to find anything, so that a great many quiet
// buckets cost their owner nothing between renewals.
func (b *Bucket) checkAtLocked() int64 {
	if b.unchecked {
		return Never
	}
	term := b.term()
	every := max(term/checks, checkEvery)
	switch {
	case b.slots || b.length > 0:
		every = min(checkLong, term/4) // terms of slots and windows do not grow so
	case term <= lease.LongTerm:
		every = min(every, checkLong)
	default:
		every = min(term/longChecks, max(term/scarceChecks, b.lastsLocked()/2))
	}
	rate := b.rate()
	if rate*float64(every) < enough*1e6 {
		if term < 2*lease.LongTerm || rate*float64(term/2) < stopped*1e6 {
			return Never
		}
		every = int64(stopped * 1e6 / rate) // a term is long enough to give back what is not used
	}
	return b.checkedAt() + every
}

// lastsLocked is how long what the whole bucket has left makes up for the trickle here, were it of no use to anybody, in microseconds.
func (b *Bucket) lastsLocked() int64 {
	if b.trickle == 0 {
		return b.term()
	}
	return int64(min(float64(b.remaining)*1e12/float64(b.trickle), float64(b.term())))
}

// Renew is RenewStrained without strain.
func (b *Bucket) Renew(now int64, final bool) lease.Renewal { return b.RenewStrained(now, final, 1) }

// RenewStrained composes the next renewal, under so much strain. It fills everything but the bucket's key, the
// limit and the holder. A final one ends the lease and gives back what is left. One that was
// not answered is followed by the next: counts are totals, and what is held is
// what the agent has, so that the store need not have seen the one before.
func (b *Bucket) RenewStrained(now int64, final bool, strain int64) lease.Renewal {
	b.mu.Lock()
	defer b.leave()
	return b.renewLocked(now, final, strain)
}

func (b *Bucket) renewLocked(now int64, final bool, strain int64) lease.Renewal {
	if b.number == 0 {
		// Higher than any number of an earlier life of this bucket in this epoch.
		b.number, b.turns = max(now, 1)-1, -1
	}
	var held, inUse int64
	switch {
	case b.slots:
		held = b.offerLocked(final)
		inUse = b.stock.credited()
	case final:
		held = b.refillLocked(now)
		held -= b.stock.credit(-held) // before admitted is read: what is spent until here counts as spent
		b.dueNowLocked()              // no lease follows that could be charged
	default:
		have := b.refillLocked(now) + b.gatheredLocked()
		b.deferLocked(now)
		// What is owed beyond it shows in what was admitted: the store takes it out, once.
		b.oweLocked(min(b.debt, have))
		held = have - b.debt
	}
	reserved := int64(0)
	if !final {
		reserved = min(b.reservedLocked(), limit.MaxUnits) // on_outage may have given out more
		held += reserved
	}
	held = min(held, limit.MaxUnits)
	// No bucket has more than that, however much is waited for: those who wait are told when it is gone.
	wanted, largest := b.wantedLocked()
	waiting := max(min(wanted, limit.MaxUnits-reserved), 0)
	before := b.toldAdmitted + b.toldDenied
	heard, heardDenied := b.answered(), b.answeredDenied()
	b.toldAdmitted = max(b.admittedLocked(), b.toldAdmitted)
	b.toldDenied = max(b.deniedLocked(), b.toldDenied)
	b.hearLocked(heard, heardDenied)
	b.number++
	b.turns++
	b.beginAnewLocked(now)
	r := lease.Renewal{
		Number:     b.number,
		Began:      b.began(),
		Admitted:   sayable(b.toldAdmitted, b.answered()),
		Denied:     sayable(b.toldDenied, b.answeredDenied()),
		Told:       sayable(b.answered(), b.answered()),
		Held:       held,
		Waiting:    waiting + reserved,
		Largest:    max(largest, min(reserved, 1)), // of what is reserved any part is of use
		Reserved:   min(reserved+b.reservingLocked(), waiting+reserved),
		InUse:      min(inUse, limit.MaxUnits),
		Final:      final,
		Strain:     strain,
		Alone:      b.alone != inContact,
		Window:     b.window,
		Generation: b.generation,
	}
	r.Void, r.VoidAgo = b.surelyVoidLocked(now)
	if b.answeredAt > 0 {
		r.Elapsed = max(now-b.answeredAt, 0)
	}
	if b.live {
		r.Trickle = b.trickle
		r.ExpiresIn = max(b.expires-now, 0)
	}
	if final {
		b.live, b.trickle, b.room, b.ended = false, 0, 0, false
		if b.slots {
			b.unofferedLocked()
		}
	}
	b.gone = final
	if b.queue != nil {
		b.queue.unheard = false
	}
	b.checked = b.toldAdmitted + b.toldDenied
	if elapsed := now - b.lastAsk; elapsed >= earlyEvery {
		b.demand = float32(float64(b.checked-before) * 1e6 / float64(elapsed))
	}
	b.lastAsk, b.looked, b.unchecked = now, 0, false
	b.early, b.stopped = false, false
	b.strained, b.heavy = strain > 1, lease.Heavy(strain)
	if b.ask == nil {
		b.own().ask = renewals.Get().(*pendingRenewal)
	}
	*b.ask = pendingRenewal{
		number: r.Number, final: final, told: b.toldAdmitted, denied: b.toldDenied, sentAt: now,
		stock: held, waited: waiting, largest: largest, reserved: reserved, inUse: inUse, nobodys: b.nobodys, window: b.window, alone: b.alone != inContact, void: b.void.quarters(), unrun: r.Unrun(),
	}
	return r
}

// said is how many units a conversation is about, at most, when it goes on: the protocol's counts are below twice that.
const said = 1 << 52

// sayable is how many of n units the conversation says, as of an answer: a bucket of large requests comes to more than it can.
func sayable(n, answered int64) int64 { return min(n-answered/said*said, 2*said-1) }

// Apply puts a grant to use and returns the requests that it decided, whose Done
// the caller runs. A grant of another number than the one under way is ignored.
func (b *Bucket) Apply(now int64, g lease.Grant) []*Waiter {
	b.mu.Lock()
	defer b.leave()
	return b.applyLocked(now, g)
}

func (b *Bucket) applyLocked(now int64, g lease.Grant) []*Waiter {
	if b.ask == nil || g.Number != b.ask.number {
		return nil
	}
	p := *b.ask
	b.endAskLocked()
	b.free = b.free && !b.slots && b.admittedLocked()+b.owedLocked() > p.told // some came while the answer was on its way
	b.failed, b.met = false, true
	if b.slots {
		if b.unleased != 0 {
			b.own().unleased = 0
		}
	}
	b.notNobodysLocked(p.nobodys)
	if p.told/said != b.answered()/said || p.denied/said != b.answeredDenied()/said {
		b.turns = -1 // a conversation whose counts are smaller
	}
	b.hearLocked(p.told, p.denied)
	b.granted = 0
	if p.alone {
		b.alone = inContact
	}
	if p.final {
		b.heardLocked(p.void)
		b.generation = 0 // nothing is held that a store could forget
		return b.serveLocked(now)
	}
	b.answeredAt = p.sentAt
	g.Tokens, g.Pile, g.Fallback = p.shrunkStock.of(g.Tokens), p.shrunkStock.of(g.Pile), p.shrunkFlow.of(g.Fallback)
	g.Next, g.Trickle = p.shrunkStock.of(g.Next), p.shrunkFlow.of(g.Trickle)
	if p.noNext {
		g.Next = 0
	}
	have := b.refillLocked(now)
	if g.ValidFrom != 0 || g.ValidUntil != 0 || g.Next != 0 {
		b.spans = true
	}
	over := p.window != b.window // it went over to the next window meanwhile
	switch {
	case over && g.ValidUntil == b.window:
		// The store had not: what it says of the next window is what counts.
		g.Tokens, g.Next, p.stock = g.Next, 0, b.turned
		g.ValidFrom, g.ValidUntil = g.ValidUntil, g.ValidUntil+b.length
		g.Reset += b.length
	case over && g.ValidFrom == b.window:
		p.stock = b.turned // it was granted ahead, and this grant replaces it
	case g.ValidFrom != b.window:
		// Another window: what is left of the old one is void.
		b.stock.credit(-have)
		p.stock = 0
		b.oweLocked(0)
		b.beginWindowLocked(g.ValidFrom)
		b.own().outside += max(b.admittedLocked()-b.toldAdmitted, 0) // committed while the answer was on its way: of the window before
	}
	if b.slots {
		// All but what it gave back stays, whatever became of it since.
		b.unofferedLocked()
		b.oweLocked(b.stock.credit(p.inUse + g.Tokens - b.stock.credited()))
	} else {
		// The store took the held stock back and granted anew; what was spent of
		// it meanwhile has to come out of the new grant.
		b.oweLocked(b.debt + b.stock.credit(g.Tokens-p.stock))
		b.dueNowLocked()
		if b.debt > 0 {
			b.oweLocked(b.stock.credit(-b.debt))
		}
	}
	b.live = true
	b.granted = g.Most()
	b.lasts = uint32(min(g.TTL, math.MaxUint32))
	b.trickle, b.room = g.Trickle, g.Pile
	if !b.slots {
		// The store counts as unspent, until it hears of it, what it granted for no request that waited: what is
		// spent of that may be filled up again, for all it knows.
		b.room += max(g.Tokens-p.waited-p.reserved, 0)
	}
	b.last = now
	b.heardLocked(p.void)
	b.expires = p.sentAt + max(g.TTL-margin, 0)
	b.renewAt = p.sentAt + g.TTL - b.leadLocked(g.TTL)
	b.undenyLocked()
	if g.DenyFor > 0 {
		b.denyUntil = now + g.DenyFor
	}
	if g.UnitIn > g.DenyFor {
		b.own().unitAt = now + g.UnitIn
	}
	if b.spans {
		r := b.own()
		r.length, r.next, r.turnAt = g.ValidUntil-g.ValidFrom, g.Next, p.sentAt+g.Reset
		r.share, r.rest = int64(float64(g.Fallback)*float64(b.length)/1e12), 0
	}
	if b.length >= quota && g.DenyFor <= max(g.Reset, 1_000) {
		// A request after the edge is not one of the window before: it waits for the new one. The store's edge
		// is as far from now as it said, less the time that its answer took: about half of all.
		b.denyUntil = min(b.denyUntil, now-(now-p.sentAt)/2+g.Reset)
	}
	if b.slots {
		b.dry = g.DenyFor > 0 || g.Remaining <= 0
		b.shareLocked(g.Fallback)
		defer b.surplusLocked() // once those who wait are served
	}
	if b.length > 0 && b.capacity > 0 {
		b.own().rest = max(int64(float64(g.Remaining)*float64(b.share)/float64(b.capacity))-g.Tokens, 0)
	}
	b.ended = false
	b.generation = g.Generation
	b.remaining = g.Remaining
	b.unchecked = false
	b.resetAt = now + g.Reset
	b.edgeLocked(now)
	b.spentBase = p.told + min(p.waited+p.reserved, g.Tokens) // what requests waited for is in no remainder
	if b.least != 0 {
		b.own().least = 0
	}
	if g.DenyFor == lease.TooLarge {
		b.own().least = int32(p.largest) // there was something, and too little for that: who asked for less meanwhile goes on waiting
	}
	served := b.serveLocked(now)
	b.levelLocked(b.stock.units() + b.stock.due())
	spare := min(p.waited, max(g.Tokens-p.reserved, 0))
	for _, w := range served {
		if w.verdict.Outcome == Admitted {
			spare -= w.Units
		}
	}
	if !b.slots && spare > 0 && b.stock.units()+b.gatheredLocked() > 0 {
		// The store takes what requests waited for as spent. One that was too large for what
		// came, or waits no more, left it here: it is in no sum until it is reported as held.
		b.early = true
	}
	b.putAsideLocked(now)
	return served
}

// leadLocked is how long before a term's end the bucket renews. A lease goes on while its renewal
// is unanswered, so a little is enough; slots in flight would be given to others.
func (b *Bucket) leadLocked(term int64) int64 {
	if b.slots {
		return term / 5
	}
	return term / 20
}

// deniedLocked returns the units denied so far that a lease could have served.
func (b *Bucket) deniedLocked() int64 { return b.stock.denied() - b.hopeless }

// Fail says that the server could not be reached: the next renewal follows when
// the caller makes it, and requests that wait are decided as in an outage.
func (b *Bucket) Fail(now int64) []*Waiter {
	b.mu.Lock()
	defer b.leave()
	b.failed = true
	if b.offered > 0 {
		b.stock.credit(b.offered) // as any lease that is live, it goes on
		b.unofferedLocked()
	}
	b.turnLocked(now, true)
	b.refillLocked(now)
	served := b.serveLocked(Never)
	if b.queue == nil {
		return served
	}
	stay := b.live && !b.stuckLocked()
	waiting := b.queue.waiters[:0]
	for _, w := range b.queue.waiters {
		switch {
		case w.patient && stay:
			waiting = append(waiting, w)
			continue
		case !b.overLocked(now):
			b.stock.refuse(w.Units)
			w.verdict = Verdict{Outcome: Denied, RetryAfter: b.retryAfterLocked(now, w.Units, true)}
		default:
			w.verdict = b.outageLocked(w.Units)
		}
		b.leaveLocked(w)
		served = append(served, w)
	}
	clear(b.queue.waiters[len(waiting):])
	b.queue.waiters = waiting
	b.emptyLocked()
	return served
}

// Expire empties the cell when its lease has ended, so that a hot path cannot go
// on spending it; the owner's loop calls it when a lease was not renewed in time.
func (b *Bucket) Expire(now int64, lost bool) {
	b.mu.Lock()
	defer b.leave()
	if !b.counting {
		b.foldLocked()
		b.expireLocked(now, lost)
	}
}

// Unused reports whether the next renewal should be final and give back what is
// held: demand stopped, or a whole term went by without any. A term that is still
// growing is no time to judge by.
func (b *Bucket) Unused() bool {
	b.mu.Lock()
	defer b.leave()
	return b.unusedLocked()
}

func (b *Bucket) unusedLocked() bool {
	b.foldLocked()
	if b.queue != nil || b.chargedLocked() || b.reservedLocked() > 0 || b.slots && b.stock.inUse() > 0 || b.touched > 0 && !b.met {
		return false
	}
	if !b.live && b.heldOutLocked() {
		return true
	}
	admitted, denied := b.admittedLocked(), b.stock.denied()
	if b.stopped && b.term() <= lease.ShortTerm {
		return admitted+denied == b.checked
	}
	return admitted == b.answered() && denied == b.answeredDenied() && (b.term() <= lease.ShortTerm || b.term() >= lease.LongTerm)
}

// undenyLocked ends what the store said of denials.
func (b *Bucket) undenyLocked() {
	b.denyUntil = 0
	if b.unitAt != 0 {
		b.own().unitAt = 0
	}
	b.reopenLocked()
}

// began is the number of the first renewal of the conversation.
func (b *Bucket) began() int64 { return b.number - int64(b.turns) }
