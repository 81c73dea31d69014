package lease

import (
	"math"

	"github.com/f4ee788f/quota/internal/limit"
)

// The constants of the step, tuned in loadtest/sim; renew.lua has the same ones.
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
	// RecordLife is how long a holder's record outlives its lease. A renewal after
	// that is a newcomer's.
	RecordLife = 600_000_000
	// MaxStep is the most time that passes in one step while anything is leased, so
	// that a clock that jumped ahead refills no more than its leases last.
	MaxStep = 2*LongTerm + 2*SlotLen
	// smoothing is the time constant of demand, in microseconds.
	smoothing = 300_000
	// mostDemand bounds a holder's demand, in thousandths of a unit a second: the
	// largest rate there is, so that sums over thousands of holders stay exact.
	mostDemand = MaxFlow * 1000
	// guessPer turns the units that wait at a first renewal into a demand, in
	// microseconds: nobody waits longer than some round trips.
	guessPer = 100_000
)

// State is a bucket in a store. Levels and stocks are micro-tokens, trickles
// micro-tokens a second, demands thousandths of a unit a second, and times
// microseconds of the bucket's own clock, which never runs backward: the
// store's clock plus Offset.
//
// The invariant that bounds over-admission (docs/error-bound.md), at every time t:
//
//	Level + Stock + Pile + Trickle × (t − Since) ≤ burst + slack,  Trickle ≤ rate
type State struct {
	Level      int64   // what may still be granted; below zero after an overdraft
	Carry      float64 // fraction of a micro-token gained, in [0, 1)
	Last       int64   // refilled up to here
	Offset     int64
	Since      int64 // trickle that went unused before this is void: the bucket was full
	Burst      int64 // the capacity that Level is of
	Window     int64 // start of the window, Unix microseconds; 0 and 0 without
	WindowEnd  int64
	Generation int64
	Full       int64 // the store's clock when the bucket may be forgotten: full, and nothing out

	Out  Sums           // over the ring
	Ring map[int64]Sums // by expiry slot: the leases that end in it

	Holders map[string]*Record
}

// Sums are totals over leases.
type Sums struct {
	Stock   int64 // tokens granted to spend at once
	Pile    int64 // the most that may have piled up from trickles
	Trickle int64
	Demand  int64
}

func (s *Sums) add(o Sums) {
	*s = Sums{s.Stock + o.Stock, s.Pile + o.Pile, s.Trickle + o.Trickle, s.Demand + o.Demand}
}
func (s *Sums) subtract(o Sums) {
	*s = Sums{s.Stock - o.Stock, s.Pile - o.Pile, s.Trickle - o.Trickle, s.Demand - o.Demand}
}

// Record is what a store knows of one holder: its last renewal, so that the same
// number gets the same answer, and its lease.
type Record struct {
	Lease   Sums  // what is in the ring at Slot
	Lent    int64 // the stock granted; what requests waited for is spent at once, and not in Lease.Stock
	Slot    int64 // of the ring; the lease's sums are in it until the slot is over
	Start   int64
	Expires int64
	Window  int64 // of the lease's stock
	Fresh   bool  // its demand was guessed
	OnShare bool  // in its window, it has what is left of its share and no more

	Began    int64 // the conversation, and its counts so far
	Admitted int64
	Denied   int64
	Grant    Grant // of the number Grant.Number
}

// mulDiv is floor(a × b ÷ c) in doubles, as Lua computes it. The conversions keep
// the compiler from fusing operations, which would round differently.
func mulDiv(a, b, c int64) int64 {
	return int64(math.Floor(float64(float64(a)*float64(b)) / float64(c)))
}

// lasts is how many microseconds gain micro-tokens take at flow a second, rounded
// up, and no more than a double holds exactly: 285 years.
func lasts(gain int64, flow float64) int64 {
	if flow <= 0 {
		return maxCount
	}
	return int64(min(math.Ceil(float64(float64(gain)*1e6)/flow), maxCount))
}

// Renew is the renewal step: it answers one holder's renewal of the bucket at
// now, the store's clock. It is the whole of what a store does in one atomic step.
func (s *State) Renew(now int64, r *Renewal) (Grant, error) {
	rate, burst := r.Spec.Flow()
	s.anchor(now, r)
	t, offset := s.clock(now)

	rec := s.Holders[r.Holder]
	if rec != nil && rec.Expires+RecordLife <= t {
		rec = nil
	}
	if rec != nil && r.Number == rec.Grant.Number {
		return rec.Grant, nil // a repeated step leaves no trace
	}
	if rec != nil && r.Number < rec.Grant.Number {
		return Grant{}, ErrStale
	}

	s.Offset = offset
	s.resize(burst, r.Spec.Windowed())
	if r.Spec.Windowed() {
		s.turn(now, &r.Spec)
	}
	slack := int64(0)
	if rate > 0 {
		slack = mulDiv(rate+burst, r.Spec.EpsilonPPM, 2*limit.Micro)
	}
	flow := r.Spec.Refill()
	s.advance(t, flow, burst, slack)

	spent, denied := r.Admitted-r.Told, int64(0)
	if rec != nil && rec.Began == r.Began {
		spent, denied = max(r.Admitted-rec.Admitted, 0), max(r.Denied-rec.Denied, 0)
	}
	spent, denied = min(spent, limit.MaxUnits), min(denied, limit.MaxUnits)
	if rec != nil && rec.Slot*SlotLen > t {
		s.release(rec)
	}
	s.putBack(t, rec, r, spent, denied, burst, slack)

	next := &Record{Start: t, Window: s.Window, Began: r.Began, Admitted: r.Admitted, Denied: r.Denied}
	next.Lease.Demand, next.Fresh = demand(t, rec, spent+denied+r.Waiting, r.Waiting)
	// A holder that came back in the middle of a window keeps to its share until it turns: others
	// are still to come back, and have spent of theirs.
	next.OnShare = rec != nil && s.Window > 0 && r.Window == s.Window &&
		(rec.Window != s.Window || rec.OnShare || 8*(spent*limit.Micro-rec.Lent) > rec.Lent)
	g := Grant{Number: r.Number, Generation: s.Generation, ValidFrom: s.Window, ValidUntil: s.WindowEnd}
	if !r.Final {
		s.grant(now, t, rec, r, rate, burst, slack, flow, next, &g)
	} else {
		next.Lease.Demand = 0
		next.Expires = t
	}
	if next.OnShare {
		next.Fresh = false
	}
	next.Grant = g
	if s.Holders == nil {
		s.Holders = make(map[string]*Record)
	}
	s.Holders[r.Holder] = next
	s.Full = now + s.untilFull(now, burst, flow)
	return g, nil
}

// anchor starts a bucket that the store does not know: full, for an idle bucket's
// key expires only once it is; but empty when the holder was granted a lease
// of it, for then the store forgot.
func (s *State) anchor(now int64, r *Renewal) {
	if s.Generation != 0 {
		return
	}
	_, burst := r.Spec.Flow()
	s.Generation = 1
	s.Last, s.Since = now, now
	s.Level, s.Burst = burst, burst
	if r.ExpiresIn > 0 {
		s.Generation = r.Generation + 1
		s.Level = 0
	}
	s.Ring = make(map[int64]Sums)
}

// clock returns the bucket's time for the store's, and the offset to keep. A small
// step back stands still until the clock has caught up; a larger one, or a leap
// ahead while anything is leased, moves the offset instead, and refills nothing for it.
func (s *State) clock(now int64) (t, offset int64) {
	t = now + s.Offset
	if t < s.Last {
		if s.Last-t >= 1_000_000 {
			return s.Last, s.Offset + s.Last - t
		}
		return s.Last, s.Offset
	}
	if most := s.Last + MaxStep; t > most && s.Out.Stock+s.Out.Pile+s.Out.Trickle > 0 {
		return most, s.Offset - (t - most)
	}
	return t, s.Offset
}

// resize follows a limit that changed: what was used stays used. A bucket that
// shrinks below what was used is empty, a window is overdrawn until it turns.
func (s *State) resize(burst int64, windowed bool) {
	if !windowed && s.Window > 0 {
		s.Window, s.WindowEnd = 0, 0
	}
	if burst == s.Burst {
		return
	}
	before := s.Level
	s.Level += burst - s.Burst
	if !windowed && s.Level < 0 {
		s.Level = min(before, 0)
	}
	s.Burst = burst
}

// turn begins a new window when the store's clock has come to it.
func (s *State) turn(now int64, p *Spec) {
	start, end := p.WindowStart, p.WindowEnd
	if now >= end {
		start, end = end, p.NextWindowEnd
	}
	if start <= s.Window {
		return
	}
	s.Window, s.WindowEnd = start, end
	s.Level = p.Units * limit.Micro
	s.Out.Stock, s.Out.Pile, s.Out.Trickle = 0, 0, 0
	for slot, sums := range s.Ring {
		s.Ring[slot] = Sums{Demand: sums.Demand}
	}
}

// advance brings the bucket to t: it refills, and lets the leases fall out whose
// slots are over, each at its time.
func (s *State) advance(t int64, flow float64, burst, slack int64) {
	for slot := s.Last/SlotLen + 1; len(s.Ring) > 0 && slot*SlotLen <= t; slot++ {
		sums, ok := s.Ring[slot]
		if !ok {
			continue
		}
		s.refill(slot*SlotLen, flow, burst, slack)
		s.Out.subtract(sums)
		delete(s.Ring, slot)
	}
	s.refill(t, flow, burst, slack)
}

func (s *State) refill(t int64, flow float64, burst, slack int64) {
	if own := flow - float64(s.Out.Trickle); own > 0 && t > s.Last {
		gained := float64(float64(t-s.Last)*own)/1e6 + s.Carry
		whole := math.Floor(gained)
		s.Carry = gained - whole
		s.Level += int64(min(whole, 1<<52))
	}
	s.Last = t
	s.clip(t, burst, slack)
}

// clip keeps the invariant: the level may not rise above what is not out, and
// when the bucket could be full, trickle that went unused until then is void.
func (s *State) clip(t, burst, slack int64) {
	full := min(burst, burst+slack-s.Out.Stock-s.Out.Pile)
	if s.Level > full {
		s.Level = max(full, 0)
		s.Carry = 0
	}
	if s.Out.Trickle <= 0 {
		s.Since = t
		return
	}
	room := max(burst+slack-s.Out.Stock-s.Out.Pile-s.Level, 0)
	s.Since = max(s.Since, t-min(mulDiv(room, 1e6, s.Out.Trickle), t))
}

// release takes a live lease out of the sums. The stock of a window that is over
// is in them no more.
func (s *State) release(rec *Record) {
	lent := rec.Lease
	if rec.Window != s.Window {
		lent = Sums{Demand: lent.Demand}
	}
	s.Out.subtract(lent)
	sums := s.Ring[rec.Slot]
	sums.subtract(lent)
	if sums == (Sums{}) {
		delete(s.Ring, rec.Slot)
	} else {
		s.Ring[rec.Slot] = sums
	}
}

// putBack returns to the level what the holder did not spend of its lease, and
// takes out what it spent beyond it (in an outage, or on a lease forgotten here).
func (s *State) putBack(t int64, rec *Record, r *Renewal, spent, denied, burst, slack int64) {
	spent *= limit.Micro
	if rec == nil {
		if r.Window == s.Window {
			s.Level = max(s.Level-spent, -burst)
		}
		return
	}
	if r.Window != s.Window {
		return // of a window that is over
	}
	if rec.Window != s.Window {
		// Out of contact the holder went on with its share of each window, this one too:
		// what is left of it stays with the holder.
		share := mulDiv(rec.Grant.Fallback, s.WindowEnd-s.Window, 1e6)
		s.Level = max(s.Level-share+min(r.Held*limit.Micro, share), -burst)
		return
	}
	// The ring kept the trickle for the holder until the slot was over, renewed or not.
	end := max(min(t, rec.Slot*SlotLen), rec.Start)
	lent := rec.Lent + mulDiv(rec.Lease.Trickle, end-rec.Start, 1e6)
	held := min(r.Held*limit.Micro, lent)
	if end < t {
		held = 0 // no longer in the sums: what was not spent of it is void
	}
	back := lent - spent - held
	if end < t && back >= 0 {
		return
	}
	s.Level += held
	if back >= 0 {
		// Unused trickle counts only since the bucket last could be full.
		since := max(min(s.Since, end), rec.Start)
		s.Level += min(back, rec.Lent+mulDiv(rec.Lease.Trickle, end-since, 1e6))
	} else {
		s.overdraw(t, end, -back, rec, spent, denied*limit.Micro, burst)
	}
	s.clip(t, burst, slack)
}

// overdraw takes out what the holder spent beyond its lease: all of it, while the
// store kept its share; otherwise the lease went on out of contact, and
// the bucket refilled as if nobody drew. What it gained wrongly is no more than the trickle since it last could be full. Where
// the holder had to deny, one central bucket would have been dry: the more it
// denied, the more is taken, but no more than is there.
func (s *State) overdraw(t, end, over int64, rec *Record, spent, denied, burst int64) {
	if end == t || s.Window > 0 {
		s.Level = max(s.Level-over, -burst)
		return
	}
	recent := min(over, mulDiv(rec.Lease.Trickle, t-max(end, min(s.Since, t)), 1e6))
	s.Level = max(s.Level-recent, -burst)
	if s.Level > 0 && denied > 0 {
		s.Level = max(s.Level-mulDiv(over-recent, denied, spent+denied), 0)
	}
}

// demand estimates a holder's demand, and tells whether it is a guess.
func demand(t int64, rec *Record, asked, waiting int64) (d int64, fresh bool) {
	if rec == nil || rec.Lease.Demand == 0 {
		return min(mulDiv(max(waiting, 1), 1e9, guessPer), mostDemand), true
	}
	elapsed := max(t-rec.Start, 1_000)
	if asked == 0 && elapsed >= FirstTerm/2 {
		return 1, false // it stopped: what it had is for others at once
	}
	seen := min(mulDiv(asked, 1e9, elapsed), mostDemand)
	if rec.Fresh {
		return max(seen, 1), false
	}
	old := rec.Lease.Demand
	return max(old+mulDiv(seen-old, elapsed, elapsed+smoothing), 1), false
}

// untilFull is how long the bucket has to be kept: until it is full, its window is over, and no
// lease can be live.
func (s *State) untilFull(now, burst int64, flow float64) int64 {
	keep := int64(2*LongTerm + 2*SlotLen)
	if s.WindowEnd > 0 {
		return max(keep, s.WindowEnd-now)
	}
	return max(keep, lasts(max(burst-s.Level, 0), flow))
}
