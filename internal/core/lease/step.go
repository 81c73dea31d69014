package lease

import (
	"math"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// The constants of the step, tuned in loadtest/sim.
const (
	// SlotLen is the grain of the expiry ring, in microseconds.
	SlotLen = 500_000
	// FirstTerm is the first lease's, while the demand is unknown: long enough to
	// measure it, short enough that a wrong guess does not last.
	FirstTerm = 200_000
	// ShortTerm is a lease's under pressure: what one agent does not use reaches
	// the others this soon.
	ShortTerm = 500_000
	// LongTerm is a lease's when nothing presses.
	LongTerm = 10_000_000
	// MaxHold bounds how long a silent holder's share is kept for it.
	MaxHold = int64(limit.MaxHold / time.Microsecond)
	// RecordLife is how long a holder's record outlives its lease. A renewal after
	// that is a newcomer's.
	RecordLife = 600_000_000
	// MaxStep is the most time that passes in one step while anything is leased. So a clock that jumps ahead
	// refills no more than its leases last (and a longer hold).
	MaxStep = 2*LongTerm + 2*SlotLen
	// leap is the clock error, in microseconds, that no message's delay explains.
	leap = 1_000_000
	// smoothing is the time constant of demand, in microseconds.
	smoothing = 300_000
	// mostDemand bounds a holder's demand, in thousandths of a unit a second. It is the largest rate there is,
	// so sums over thousands of holders stay exact.
	mostDemand = limit.MaxFlow * 1000
	// guessPer turns the units that wait at a first renewal into a demand, in
	// microseconds: nobody waits longer than some round trips.
	guessPer = 100_000
)

// mulDiv is floor(a × b ÷ c) in doubles. The conversions keep the compiler from fusing operations, which would
// round differently on other machines. Servers that share a bucket must come to the same figures.
func mulDiv(a, b, c int64) int64 {
	return int64(math.Floor(float64(float64(a)*float64(b)) / float64(c)))
}

// whole is v without its fraction of a token, rounded down.
func whole(v int64) int64 { return mulDiv(v, 1, limit.Micro) * limit.Micro }

// lasts is how many microseconds gain micro-tokens take at flow a second, rounded
// up, and no more than a double holds exactly: 285 years.
func lasts(gain int64, flow float64) int64 {
	if flow <= 0 {
		return maxCount
	}
	return int64(min(math.Ceil(float64(float64(gain)*1e6)/flow), maxCount))
}

// step is one renewal of a bucket under way.
type step struct {
	*State
	r      *Renewal
	now, t int64 // the store's clock, and the bucket's

	rate, burst int64   // what is shared out (Spec.Flow); a sliding window's rate is this window's
	flow        float64 // the rate, not rounded
	slack       int64   // epsilon's part in the store: half of it, of a second's rate and the burst

	rec           *Record // the holder's; nil for a newcomer
	next          *Record // what becomes of it
	spent, denied int64   // units since the last renewal
	steady        bool    // demand is what it was, but for noise
	lots          bool    // there is plenty (plenty.go)
	keeps         int64   // of a window: what the holder may spend beside its grant before it hears of that
	strain        int64   // how many times as long as otherwise the lease is to last, at least 1 (strainOf)
}

// Renew is the renewal step: it answers one holder's renewal of the bucket at now, the store's clock. It is all
// that a store does in one atomic step.
func (s *State) Renew(now int64, r *Renewal) (Grant, error) {
	born := s.Generation == 0
	if born && r.unsure(now) {
		return Grant{}, ErrUnsure
	}
	s.anchor(now, r)
	rec := s.Holders[r.Holder]
	t, offset, ahead := s.clock(now, r, rec)
	if rec != nil && rec.gone(t) {
		rec = nil
	}
	if rec != nil && r.Number == rec.Grant.Number {
		return rec.Grant, nil // a repeated step leaves no trace
	}
	if rec != nil && r.Number < rec.Grant.Number {
		return Grant{}, ErrStale
	}
	s.Offset = offset
	x := step{State: s, r: r, now: now, t: t, rec: rec}
	x.rate, x.burst = r.Spec.Flow()
	x.flow = r.Spec.Refill()
	forgotten := rec == nil && r.ExpiresIn > 0 && t >= s.Suspect && r.Generation >= s.Generation ||
		rec != nil && rec.Began == r.Began && rec.Admitted < r.Told ||
		born && r.forgot(now)
	if s.Algorithm != r.Spec.Algorithm {
		x.change()
		t = x.t
	}
	if s.Changed > 0 && t >= s.Changed+RecordLife {
		s.Changed = 0
	}
	changed := rec != nil && (rec.Algorithm != s.Algorithm || rec.Start < s.begun())
	if changed {
		x.rec = nil // its lease is out as a pile until its slot is over
	}
	x.resize()
	x.turn()
	x.slack = r.Spec.slack(x.rate, x.burst)
	x.advance(t)
	x.Locked = min(x.Locked, t+r.Spec.Lockout) // a lockout that was shortened, or is no more, does not last longer
	if r.Spec.Sliding() {
		x.rate = x.slidingRate()
		x.flow = float64(x.rate)
	}
	if forgotten {
		x.forget()
	}
	if t < x.Suspect {
		x.trust()
	}
	if r.Spec.Ledgered {
		x.doubt(born, forgotten)
	}

	x.spent = r.Admitted - r.Told
	if x.rec != nil && x.rec.Began == r.Began {
		x.spent, x.denied = max(r.Admitted-x.rec.Admitted, 0), max(r.Denied-x.rec.Denied, 0)
	} else if changed {
		x.chargeOld(rec)
		x.spent = 0
	}
	x.spent, x.denied = min(x.spent, limit.MaxUnits), min(x.denied, limit.MaxUnits)
	if x.rec != nil {
		x.release()
	}
	g := Grant{Number: r.Number, Generation: s.Generation}
	next := Record{Algorithm: s.Algorithm, Start: t, Ahead: ahead, Window: s.Window, Began: r.Began, Admitted: r.Admitted, Denied: r.Denied}
	x.next = &next
	switch s.Algorithm {
	case limit.Concurrency:
		x.slots(&g)
	case limit.SlidingWindowLog:
		x.log(&g)
	default:
		x.bucket(&g)
	}
	if r.Spec.Ledgered {
		g.Unsure = x.unsure(&g)
	}
	g.Out, g.Drawn = (s.Out.Stock+s.Out.Pile)/limit.Micro, s.Out.Trickle
	next.Grant = g
	s.record(r.Holder, &next)
	full := now + x.untilFull()
	if s.Algorithm == limit.Concurrency && s.Forgiven > 0 {
		full = max(full, s.Full) // the use under the old algorithm stays known for as long as it counts
	}
	s.Full = full
	return g, nil
}

// record keeps what became of the holder's record, over the old one if it has any.
func (s *State) record(holder string, next *Record) {
	s.Steps++
	if rec := s.Holders[holder]; rec != nil {
		*rec = *next
		return
	}
	if s.Holders == nil {
		s.Holders = make(map[string]*Record)
	}
	kept := *next
	s.Holders[holder] = &kept
}

// bucket is the step of all that refills or counts in windows.
func (x *step) bucket(g *Grant) {
	if x.Algorithm == limit.FixedWindow {
		g.ValidFrom, g.ValidUntil = x.Window, x.WindowEnd
	}
	if x.Algorithm == limit.SlidingWindow {
		x.slideBack()
	} else {
		x.putBack()
		x.owe()
		x.unborrowed()
	}
	if x.r.Spec.Ledgered {
		x.hear()
	}
	next, r := x.next, x.r
	next.Lease.Demand, next.Fresh = x.demand()
	next.Largest = x.largest()
	if r.Final {
		next.Lease.Demand = 0
		next.Expires = x.t
		x.farewell(g)
	} else {
		x.grant(g)
	}
}

// anchor starts a bucket that the store does not know: full, for an idle bucket's
// key expires only once it is.
func (s *State) anchor(now int64, r *Renewal) {
	if s.Generation != 0 {
		return
	}
	_, burst := r.Spec.Flow()
	s.Algorithm = r.Spec.Algorithm
	s.Generation = 1
	s.Last, s.Since, s.Edge, s.LastEdge = now, now, now, now
	s.Level, s.Burst = burst, burst
}

// clock returns the bucket's time for the store's, the offset to keep, and how far the time is ahead of the
// holder's clock. After a small step back, time stands still until the clock has caught up. After a larger one,
// or a leap ahead while anything is leased, the offset moves instead. Then the bucket refills by the holder's
// clock.
func (s *State) clock(now int64, r *Renewal, rec *Record) (t, offset, ahead int64) {
	t = now + s.Offset
	most := int64(math.MaxInt64)
	if s.Out.Stock >= limit.Micro || s.Out.Pile+s.Out.Trickle > 0 { // less than a token only marks a lease (grant)
		most = max(s.Last+max(MaxStep, LongTerm+r.Spec.hold()+2*SlotLen), s.Ring.lastLease()*SlotLen)
	}
	// The holder's own clock knows better how long ago its last step was. The two differ, since messages take
	// time. Their total difference is bounded, so a clock that leaps again and again gains no more.
	proven, known := int64(0), rec != nil && !rec.gone(s.Last) && r.Elapsed > 0
	if known {
		proven = rec.Start + r.Elapsed - rec.Ahead
		most = min(most, max(s.Last, proven+r.Spec.tolerance()))
	}
	offset = s.Offset
	switch {
	case s.Last-t >= leap:
		to := s.Last
		if known && rec.Began == r.Began && rec.Admitted == r.Told {
			to = max(to, min(proven, most)) // the last step is the one that the holder was answered
		}
		t, offset = to, offset+to-t
	case t < s.Last:
		t = s.Last
	case t > most:
		if t-most >= leap {
			offset -= t - most
		}
		t = most
	}
	if known {
		ahead = min(max(t-proven, 0), r.Spec.tolerance())
	}
	return t, offset, ahead
}

// begun is when the bucket began, or took its algorithm. Leases from before are piles in the ring.
func (s *State) begun() int64 {
	if s.Algorithm == limit.SlidingWindow {
		return s.Since // a sliding window's Edge moves; the others' Since does
	}
	return s.Edge
}

// resize follows a limit that changed: what was used stays used. A window that shrinks below its use is
// overdrawn until it turns, which does not count as borrowed from the next. Slots are overdrawn until enough
// are free. A bucket is empty and owes nothing: its debt is Forgiven, and taken back when it grows again. So a
// limit that shrinks for a while gives no more than the larger one would have given all the time. The same
// holds while servers with different versions make it larger and smaller by turns.
func (x *step) resize() {
	if x.burst == x.Burst {
		return
	}
	by := x.burst - x.Burst
	if x.r.Spec.Prorate && x.r.Spec.Windowed() && x.WindowEnd > x.now {
		// The old limit holds for the part of the window that is over. If the window's length changes too, it
		// is the shorter window's part, in either direction. So servers with different versions give nothing
		// twice.
		end := x.WindowEnd
		if start, to := x.present(); start <= x.Window && to > x.now {
			end = min(end, to)
		}
		by = whole(mulDiv(by, min(end-x.now, end-x.Window), end-x.Window))
	}
	x.Burst = x.burst
	// What is lent is part of what was not used: what comes back of it adds nothing.
	before, unused := x.Level, x.Level+x.Out.Stock
	x.Level += by
	back := min(x.Forgiven, max(by, 0))
	switch {
	case x.r.Spec.Windowed():
		x.Forgiven += max(min(before+x.Forgiven, 0)-x.Level-x.Forgiven, 0) - back
		x.unborrowed()
	case !x.r.Spec.Refills():
	case by > 0:
		x.Forgiven -= back
		x.Level -= back
	default:
		x.forgive(min(unused, 0))
		x.owe()
	}
}

// unborrowed limits Forgiven of a window to what the window is overdrawn by.
func (x *step) unborrowed() {
	if x.r.Spec.Windowed() {
		x.Forgiven = min(x.Forgiven, max(-x.Level, 0))
	}
}

// forgive raises the level, with what is lent, to least, if it is lower.
func (x *step) forgive(least int64) {
	if over := least - x.Level - x.Out.Stock; over > 0 {
		x.Forgiven = min(x.Forgiven+over, limit.MaxUnits*limit.Micro)
		x.Level += over
	}
}

// owe limits the debt of a bucket that shrank to what one of its size may have. Debt from earlier lending may
// be more.
func (x *step) owe() {
	if x.r.Spec.Refills() {
		x.forgive(-x.burst - x.r.Spec.Borrow*limit.Micro)
	}
}

// demand estimates the holder's demand, and reports whether it is a guess.
func (x *step) demand() (d int64, fresh bool) {
	// Waiting requests are decided and counted by the next renewal, unless they are more than the rest.
	// Reserved units are counted when they are spent.
	rec, asked := x.rec, max(x.spent+x.denied, x.r.Waiting-x.r.Reserved)
	switch {
	case rec == nil && x.r.onFallback():
		return max(min(mulDiv(asked, 1e9, x.r.Elapsed), mostDemand), 1), false
	case rec == nil && x.r.ExpiresIn > 0 && x.r.Trickle > 0:
		return max(min(x.r.Trickle/1_000, mostDemand), 1), false // the store forgot: a trickle is about the demand
	case rec == nil || rec.Lease.Demand == 0:
		return min(mulDiv(max(x.r.Waiting, 1), 1e9, guessPer), mostDemand), true
	}
	elapsed := max(x.t-rec.Start, 1_000)
	if own := x.r.Elapsed; own >= elapsed+leap && rec.Began == x.r.Began && rec.Admitted == x.r.Told {
		elapsed = own // the bucket's clock may have gone on for only a part of an outage
	}
	old := rec.Lease.Demand
	steady := x.within(asked, elapsed) && x.grows()
	if asked == 0 && (elapsed >= FirstTerm/2 && !steady || mulDiv(old, elapsed, 1e9) >= sample) {
		return 1, false // it stopped: what it had is for others at once
	}
	seen := mulDiv(asked, 1e9, elapsed)
	if x.Algorithm == limit.Concurrency {
		// Who waits for a slot waits through many renewals.
		seen = mulDiv(x.spent+x.denied, 1e9, elapsed) + mulDiv(x.r.Waiting, 1e9, max(elapsed, guessPer))
	}
	if rec.Fresh && x.Algorithm != limit.Concurrency {
		if rec.Grant.TTL > 2*ShortTerm {
			asked = max(asked-1, 0) // it began with a request: that one tells nothing
		}
		seen = mulDiv(asked, 1e9, max(elapsed, guessPer)) // a few within a millisecond do not make thousands a second
	}
	seen = min(seen, mostDemand)
	if rec.Fresh {
		return max(seen, 1), false
	}
	over := int64(smoothing)
	if !x.steady {
		over = mulDiv(smoothing, x.prompt(), FirstTerm/2)
	}
	if steady && old >= faint {
		over = max(over, min(mulDiv(sample, 1e9, old), LongTerm)) // likely noise moves it less
	}
	return max(old+mulDiv(seen-old, elapsed, elapsed+over), 1), false
}

// hang puts the new lease, of the given term, into the sums and the ring.
func (x *step) hang(term, hold int64) {
	next := x.next
	next.Expires = x.t + term
	next.Slot = (x.t + term + max(min(term, LongTerm), hold) + SlotLen) / SlotLen
	if grain := max(term/16, hold/64) / SlotLen; grain > 1 {
		// A coarser grain keeps the ring of long leases short.
		next.Slot = (next.Slot/grain + 1) * grain
	}
	x.Out.Add(next.Lease)
	lent, fallback := next.Lease.apart()
	x.Ring.Add(next.Slot, lent)
	if fallback.Fallback > 0 {
		x.Ring.Add(next.FallbackSlot(), fallback)
	}
}

// untilFull is how long the bucket has to be kept: until it is full, its window is over, and no lease can be
// live. If the next window is owed or leased already, that must be over too.
func (x *step) untilFull() int64 {
	keep := max(MaxStep, LongTerm+x.r.Spec.hold()+2*SlotLen, x.Locked-x.t, x.Ring.last()*SlotLen+2*SlotLen-x.t)
	switch x.Algorithm {
	case limit.FixedWindow:
		if x.Out.Next > 0 || x.r.Spec.Borrow > 0 && x.Level+x.Forgiven < 0 {
			// The next window begins with less. A bucket forgotten at the edge would begin it whole.
			keep = max(keep, x.r.Spec.NextWindowEnd-x.now, 2*x.WindowEnd-x.Window-x.now)
		}
		return max(keep, x.WindowEnd-x.now)
	case limit.SlidingWindow:
		return max(keep, x.r.Spec.NextWindowEnd-x.now, 2*x.WindowEnd-x.Window-x.now)
	case limit.SlidingWindowLog:
		return max(keep, x.r.Spec.Period)
	case limit.Concurrency:
		return keep
	}
	return max(keep, lasts(max(x.burst-x.Level, 0)+x.Forgiven, x.flow))
}
