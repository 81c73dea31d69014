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

// began is the number of the first renewal of the conversation.
func (b *Bucket) began() int64 { return b.number - int64(b.turns) }
