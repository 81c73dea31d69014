package relay

import (
	"errors"
	"fmt"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/limit"
)

const (
	// least is the rate, in units a second, from which a bucket is held here. Of smaller ones every token is asked
	// for by itself, and one that lay here would be missed elsewhere.
	least = 16
	// margin is taken off each term of the relay's lease for the time that clocks and locks lose, in microseconds.
	margin = 2_000
	// cushion is the use for which tokens stay here while the store is asked, in microseconds: some round trips.
	cushion = 20_000
	// again is the least time between two renewals that nobody waits for, in microseconds.
	again = 20_000
	// changed is how long after an answer a demand that halved or doubled is a reason to ask.
	changed = 100_000
	// perWaiting makes a demand, in thousandths of a unit a second, of a unit that waits at a first renewal: in a tenth of a
	// second, as the step guesses.
	perWaiting = 10_000
	// issued marks a generation as a relay's: stores count theirs from 1.
	issued = lease.Relayed
)

// Eligible reports whether a relay may hold the bucket. The level of what is strict is right to the token in every window,
// and what may be borrowed, locks or is the ledger's is decided by what the whole bucket has: these go to the store. So does
// what is held for silent agents: the store would hold it for a server that ended, and its agents come back by other ones.
func Eligible(s *lease.Spec) bool {
	return s.Algorithm == limit.TokenBucket && s.EpsilonPPM > 0 && s.Borrow == 0 && s.Lockout == 0 && s.Hold == 0 && s.Refill() >= least*limit.Micro
}

// Issued reports whether a relay granted in this generation. To who did not, the lease is not known.
func Issued(generation int64) bool { return generation >= issued }

// Bucket is a bucket that is held here. Whoever has it asks the store when Due, one renewal at a time.
type Bucket struct {
	key, holder string
	spec        lease.Spec       // the limit, as agents last brought it
	state       lease.State      // what is held, and the leases made of it
	granted     lease.Spec       // and as the store last heard it
	first       int64            // generations of this bucket's are from here to the state's
	past        map[string]count // of agents whose leases ended with one that was not renewed in time
	ended       int64            // when the last of these did

	live       bool
	until      int64 // the lease ends, by the server's clock
	demand     int64 // the demand that the store knows of
	rate, size int64 // it trickles so much, micro-tokens a second; tokens that may be here and out
	grant      lease.Grant
	denyUntil  int64
	answeredAt int64 // when the renewal was sent that was last answered
	failedAt   int64

	number, began           int64
	denied                  int64 // units that agents denied out of contact
	admitted, told          int64 // units that agents reported; as of the last renewal that was answered
	asked                   lease.Renewal
	sentAt                  int64
	flying                  bool  // asked is under way, or its answer was lost
	passing                 int64 // units of it that requests waited for,
	unserved                int64 // and what of them these did not have yet
	wanted                  bool  // a renewal waits for the next answer
	waiting, largest, guess int64 // what renewals that wait ask for, beyond the one under way
}

// count is what an agent had reported in a conversation.
type count struct{ began, admitted, denied int64 }

// NewBucket returns a bucket that nothing is held of. generation differs from every other bucket's, at every relay.
func NewBucket(key, holder string, generation int64) *Bucket {
	b := &Bucket{key: key, holder: holder, first: generation | issued, past: make(map[string]count)}
	b.begin(b.first, 0)
	return b
}

// begin forgets the leases that were made, all of which ended.
func (b *Bucket) begin(generation, now int64) {
	for holder, rec := range b.state.Holders {
		if rec.Slot > 0 { // it did not end its own: it may go on out of contact
			b.past[holder] = count{rec.Began, rec.Admitted, rec.Denied}
			b.ended = now
		}
	}
	b.state = lease.State{Algorithm: limit.TokenBucket, Generation: generation, Last: now, Since: now, Ring: make(map[int64]lease.Sums)}
}

// shared is the limit that leases here are made of: no more than what is held.
func (b *Bucket) shared() lease.Spec {
	return lease.Spec{Algorithm: limit.TokenBucket, Units: b.rate, Period: 1_000_000_000_000, Burst: b.size, Until: b.until}
}

// advance brings what is here to now, and no further than the lease goes.
func (b *Bucket) advance(now int64) {
	s := b.shared()
	b.state.Advance(min(now, max(b.until, b.state.Last)), &s)
	if b.live && now >= b.until {
		// Every lease made of it ended before, or goes on out of contact.
		b.live, b.rate, b.size = false, 0, 0
		b.begin(b.state.Generation+1, now)
	}
}

// term is the relay's lease's.
func (b *Bucket) term() int64 { return max(b.grant.TTL, 1) }

// Due reports whether the store is to be asked.
func (b *Bucket) Due(now int64) bool {
	switch {
	case b.flying || b.failing(now):
		return false
	case b.wanted:
		return true
	case !b.live:
		return false
	case b.Idle() || now >= b.answeredAt+b.term()/2:
		return true
	case now < b.denyUntil:
		return false
	}
	told := b.demand
	if d := b.state.Out.Demand; now >= b.answeredAt+changed && (2*d < told || d > 2*told) {
		return true // what agents here no longer use reaches others, and what they use more is asked for
	}
	return b.state.Level < b.need() && now >= b.answeredAt+max(again, b.term()/5)
}

// failing reports whether the store did not answer just now.
func (b *Bucket) failing(now int64) bool { return b.failedAt > 0 && now < b.failedAt+again }

// Idle reports whether nothing is out, so that the lease may be given back.
func (b *Bucket) Idle() bool {
	out := &b.state.Out
	return out.Stock == 0 && out.Pile == 0 && out.Trickle == 0 && out.Demand == 0 && !b.wanted
}

// Dead reports whether nothing is held.
func (b *Bucket) Dead(now int64) bool { return !b.flying && (!b.live || now >= b.until) }

// Forgettable reports whether there is nothing to remember either: what an agent reports that was out of contact for longer than
// a store keeps its record is not taken out anywhere.
func (b *Bucket) Forgettable(now int64) bool {
	if !b.Dead(now) {
		return false
	}
	b.advance(now)
	return len(b.past) == 0 || now >= b.ended+lease.RecordLife
}

// Holders is how many agents are remembered.
func (b *Bucket) Holders() int { return len(b.state.Holders) + len(b.past) }

// Knows reports whether a lease was made here for an agent.
func (b *Bucket) Knows(holder string) bool { return b.state.Holders[holder] != nil }

// count takes in what an agent did out of contact with a lease of this bucket's that ended: each unit once, however often it says so.
func (b *Bucket) count(r *lease.Renewal) {
	if !b.made(r.Generation) {
		return
	}
	c, ok := b.past[r.Holder]
	if !ok || c.began != r.Began {
		c = count{r.Began, r.Told, r.Denied}
	}
	b.admitted += max(r.Admitted-c.admitted, 0)
	b.denied += max(r.Denied-c.denied, 0)
	b.past[r.Holder] = count{r.Began, max(r.Admitted, c.admitted), max(r.Denied, c.denied)}
	b.ended = max(b.ended, b.state.Last)
}

// made reports whether leases of a generation were made here.
func (b *Bucket) made(generation int64) bool {
	return generation >= b.first && generation <= b.state.Generation
}

// need is what of the level stays here while the store is asked.
func (b *Bucket) need() int64 {
	return int64(float64(b.state.Out.Demand) * 1e3 * cushion / 1e6)
}

// Cold reports whether the store is being asked for a first lease of the bucket. Who comes meanwhile waits for the answer after it: this
// one was asked for others. Of a bucket that has a lease all share what comes: calls for some more, one after the other, leave
// too little to the rest (loadtest/sim).
func (b *Bucket) Cold() bool { return b.flying && !b.live }

// Renew answers an agent's renewal, if it can: otherwise the renewal waits for the store, and is to be made again
// when Answered was called. waited says that the store was asked for it.
func (b *Bucket) Renew(now int64, r *lease.Renewal, waited bool) (lease.Answer, bool) {
	if r.Number <= b.seen(r.Holder) {
		return b.step(now, r), true // repeated, or stale
	}
	b.advance(now)
	wait := !b.live || !same(&b.granted, &r.Spec) ||
		now >= b.until-b.term()/8 ||
		r.Waiting*limit.Micro > b.state.Level && (b.flying || now >= b.denyUntil)
	if !wait || waited && b.live {
		return b.step(now, r), true
	}
	if !b.flying && b.failing(now) {
		if b.live && now < b.until {
			return b.step(now, r), true
		}
		return lease.Answer{Err: fmt.Errorf("%w: no lease of the bucket", lease.ErrUnavailable)}, true
	}
	b.spec, b.wanted = r.Spec, true
	b.waiting += r.Waiting
	b.largest = max(b.largest, r.Largest)
	if rec := b.state.Holders[r.Holder]; rec == nil {
		b.guess += max(r.Waiting, 1) * perWaiting
	}
	if !b.live {
		b.count(r) // so that the store takes it out before it grants more
	}
	return lease.Answer{}, false
}

// same reports whether two limits are of the same rate.
func same(a, b *lease.Spec) bool {
	return a.Units == b.Units && a.Period == b.Period && a.Burst == b.Burst && a.EpsilonPPM == b.EpsilonPPM
}

// seen is the number of the last renewal of a holder that was answered here.
func (b *Bucket) seen(holder string) int64 {
	if rec := b.state.Holders[holder]; rec != nil {
		return rec.Grant.Number
	}
	return 0
}

// step makes a lease of what is here.
func (b *Bucket) step(now int64, r *lease.Renewal) lease.Answer {
	own := *r
	own.Spec, own.Elapsed, own.Figure, own.Memory, own.Kept = b.shared(), 0, lease.Figure{}, lease.Memory{}, lease.Sums{}
	rec := b.state.Holders[r.Holder]
	told := int64(0)
	switch {
	case rec != nil && r.Number <= rec.Grant.Number:
	case rec == nil || r.Generation != 0 && r.Generation != b.state.Generation || rec.Began == r.Began && rec.Admitted < r.Told:
		// What it holds is another's, who counts it as out until the lease ends. What was made here of an
		// earlier lease falls out at its time.
		if rec == nil {
			b.count(r)
		} else if b.made(r.Generation) && rec.Began == r.Began {
			told = max(r.Admitted-max(rec.Admitted, r.Told), 0) // the answer that was of this generation did not come
		}
		delete(b.state.Holders, r.Holder)
		own.Held, own.ExpiresIn, own.Trickle, own.Told = 0, 0, 0, own.Admitted
	case rec.Began == r.Began:
		told = max(r.Admitted-rec.Admitted, 0)
	}
	b.state.Sweep(now)
	// What others wait for is theirs.
	others := min(max(b.unserved-r.Waiting, 0)*limit.Micro, max(b.state.Level-r.Waiting*limit.Micro, 0))
	b.state.Level -= others
	g, err := b.state.Renew(now, &own)
	b.state.Level += others
	if err != nil {
		return lease.Answer{Err: err}
	}
	b.unserved = max(b.unserved-min(r.Waiting, g.Tokens), 0)
	b.admitted += told
	delete(b.past, r.Holder)
	g.TTL = max(min(g.TTL, b.until-now), 1_000)
	switch {
	case g.DenyFor == 0:
	case b.denyUntil > now:
		g.DenyFor = max(min(g.DenyFor, min(b.until, b.denyUntil)-now), lease.TooLarge)
	case g.Tokens < r.Waiting:
		g.DenyFor = lease.TooLarge
	default:
		g.DenyFor = 0 // there is nothing here, but the store has more
	}
	b.whole(now, r.Holder, &g)
	return lease.Answer{Grant: g}
}

// whole fills in what a grant says of the whole bucket: as the store said, and as it went on since.
func (b *Bucket) whole(now int64, holder string, g *lease.Grant) {
	if rec := b.state.Holders[holder]; rec != nil && b.state.Out.Demand > 0 {
		g.Fallback = max(g.Trickle, int64(float64(b.grant.Fallback)*float64(rec.Lease.Demand)/float64(b.state.Out.Demand)))
	}
	rate := b.spec.Refill() / limit.Micro
	left := float64(b.grant.Remaining) + rate*float64(now-b.sentAt)/1e6 - float64(b.admitted-b.told)
	g.Remaining = int64(max(min(left, float64(b.spec.Burst)), 0))
	g.Reset = int64(float64(b.spec.Burst-g.Remaining) / rate * 1e6)
	g.Out, g.Drawn = b.grant.Out, b.grant.Drawn
}

// Ask makes the renewal of the relay's own lease. After a lost answer it is the same renewal again, so that nothing is
// granted twice.
func (b *Bucket) Ask(now int64) lease.Renewal {
	if b.asked.Number > 0 && now < b.sentAt+lease.LongTerm {
		b.flying = true
		return b.asked
	}
	b.advance(now)
	if b.number == 0 {
		b.began = max(now, 1)
		b.number = b.began - 1
	}
	b.number++
	demand := b.state.Out.Demand + b.guess
	out, keep := b.state.Out, int64(0)
	if !b.Idle() {
		keep = max(b.need(), b.waiting*limit.Micro)
	}
	give := max(b.state.Level-keep, 0)
	give -= give % limit.Micro
	b.state.Level -= give
	kept := (out.Stock + max(b.state.Level, 0)) / limit.Micro
	b.asked = lease.Renewal{
		Key: b.key, Spec: b.spec, Holder: b.holder, Number: b.number, Began: b.began, Admitted: b.admitted, Denied: b.denied, Told: b.told,
		Held: kept + give/limit.Micro, Waiting: max(b.waiting-max(b.state.Level, 0)/limit.Micro, 0), Generation: b.grant.Generation,
		Kept:  lease.Sums{Stock: kept * limit.Micro, Pile: out.Pile, Trickle: out.Trickle, Demand: max(demand, 1)},
		Final: b.Idle(),
	}
	b.asked.Largest = min(b.largest, b.asked.Waiting)
	if b.answeredAt > 0 {
		b.asked.Elapsed = max(now-b.answeredAt, 0)
	}
	if b.live {
		b.asked.Trickle, b.asked.ExpiresIn = max(b.rate, out.Trickle), max(b.until-now, 0)
	}
	// Until the answer nobody knows what the share is: what is out goes on, and nothing is gained here.
	b.demand = demand
	b.rate, b.size = out.Trickle, kept+1+out.Pile/limit.Micro // and a fraction of a token
	b.state.Burst = b.size * limit.Micro
	b.wanted, b.waiting, b.largest, b.guess = false, 0, 0, 0
	b.flying, b.sentAt = true, now
	return b.asked
}

// Answered takes in the store's answer. Renewals that wait are then to be made again, and after them Settled called.
func (b *Bucket) Answered(now int64, a lease.Answer) {
	r := b.asked
	if a.Err != nil {
		b.failed(now, a.Err)
		return
	}
	b.advance(now)
	b.flying, b.asked, b.failedAt = false, lease.Renewal{}, 0
	b.told, b.answeredAt, b.granted = r.Admitted, b.sentAt, r.Spec
	g := a.Grant
	if r.Final {
		b.live, b.rate, b.size, b.until, b.grant = false, 0, 0, 0, lease.Grant{}
		b.begin(b.state.Generation+1, now)
		b.wanted, b.waiting, b.largest, b.guess = false, 0, 0, 0
		return
	}
	b.state.Level += g.Tokens*limit.Micro - r.Kept.Stock
	if !b.live {
		b.state.Level = max(b.state.Level, 0)
		b.state.Last, b.state.Since = now, now
	}
	b.live, b.until = true, b.sentAt+max(g.TTL-margin, 0)
	b.grant, b.rate = g, g.Trickle
	b.denyUntil = 0
	if g.DenyFor > 0 {
		b.denyUntil = now + g.DenyFor
	}
	// What requests wait for is passed on at once, beyond what the lease is worth to the store.
	b.size = max(g.Tokens, 0) + g.Pile
	b.state.Burst = b.size * limit.Micro
	if now >= b.until {
		b.advance(now) // it took longer than it lasts
	}
	b.passing = min(r.Waiting, max(g.Tokens-r.Kept.Stock/limit.Micro, 0))
	b.unserved = b.passing
	b.wanted, b.waiting, b.largest, b.guess = false, 0, 0, 0
}

// Settled ends an answer: what was to be passed on and was not is nobody's.
func (b *Bucket) Settled() {
	b.unserved = 0
	if b.live && b.passing > 0 {
		b.size, b.passing = b.size-b.passing, 0
		b.state.Burst = b.size * limit.Micro
		full := b.state.Burst - b.state.Out.Stock - b.state.Out.Pile
		b.state.Level = min(b.state.Level, max(full, 0))
	}
}

// failed keeps the renewal, whose answer may have been lost; but one that the store refuses is not made again.
func (b *Bucket) failed(now int64, err error) {
	b.flying, b.failedAt = false, max(now, 1)
	if !errors.Is(err, lease.ErrUnavailable) {
		b.asked = lease.Renewal{}
	}
	b.wanted, b.waiting, b.largest, b.guess = false, 0, 0, 0
}
