package lease

import "github.com/f4ee788f/quota/internal/core/limit"

// A store may forget: a failover loses its last writes, a wiped shard everything. A holder proves it by a live
// lease, or by an answer, that the store does not know. The bucket is suspect from then on: for as long as such
// leases can live, or until holders have declared them. Its tokens are taken to be out, with the forgotten
// leases. A holder that comes back declares its lease and keeps what it had, no more. Others share what epsilon
// allows. Then all is as before.

// Loss is a part of a store that forgot something, as a server noticed.
type Loss struct {
	Why  Why
	Part string // for people
}

// Why is how a loss was noticed.
type Why string

// The ways to notice one.
const (
	Emptied Why = "emptied" // all of it is gone, perhaps as another server found first
	Behind  Why = "behind"  // it went on from a state before the last one seen
	Another Why = "another" // what it holds is of a history that nobody knows
	Evicted Why = "evicted" // buckets were dropped for want of memory
)

// Whys are all of them, for counters.
func Whys() []Why { return []Why{Emptied, Behind, Another, Evicted} }

// declared is how long after a loss that servers notice holders have declared most leases, in microseconds. They are told
// within 0.3 s, and a gateway spreads its renewals over as long. A later one proves the loss once more.
const declared = 1_000_000

// forgot reports whether a bucket that begins now is one that the store forgot. The store says so, or it began just
// now itself, and the holder comes back from an outage.
func (r *Renewal) forgot(now int64) bool {
	return (r.Memory.Lost || r.onFallback()) && now < r.Memory.Since+r.declares()
}

// declares is how long a new bucket is suspect after a loss. What was used of a window or a log is not known for longer.
func (r *Renewal) declares() int64 {
	if r.Spec.Refills() {
		return declared
	}
	return LongTerm
}

// trust ends suspicion early where servers noticed the loss: holders were told, and have declared their leases.
func (x *step) trust() {
	m := &x.r.Memory
	if !x.r.Spec.Refills() || m.Since <= 0 || m.Since > x.now || x.now >= m.Since+LongTerm {
		return
	}
	x.Suspect = min(x.Suspect, x.t+max(m.Since+declared-x.now, FirstTerm))
}

// forget begins the bucket again when a loss is proven.
func (x *step) forget() {
	spec := &x.r.Spec
	x.Suspect = x.t + LongTerm
	x.Generation = following(max(x.Generation, x.r.Generation))
	within := whole(mulDiv(x.burst, spec.EpsilonPPM, limit.Micro))
	switch x.Algorithm {
	case limit.FixedWindow, limit.Concurrency:
		// Nobody here knows what was used: the units may be granted, but not at once.
		x.withhold(within)
	case limit.SlidingWindow:
		// As if it had been used up evenly.
		length := x.WindowEnd - x.Window
		x.Level = min(x.Level, 0)
		x.Before = x.burst
		x.Left = mulDiv(x.Before, min(max(x.WindowEnd-x.now, 0), length), length)
		x.rate = x.slidingRate()
		x.flow = float64(x.rate)
	case limit.SlidingWindowLog:
		x.fillLog()
	default:
		x.Level = min(x.Level, 0)
	}
}

// following is the generation after the store's own, or after one that a holder named: other holders may name
// that too.
func following(generation int64) int64 { return min(generation+1, maxCount) }

// withhold leaves no more than within to be granted.
func (x *step) withhold(within int64) {
	if x.Level > within {
		x.Withheld += x.Level - within
		x.Level = within
	}
}

// redeclare takes in a holder that the store does not know. With a live lease, or on its fallback, the store takes over
// what it holds; without one, it takes out what it spent.
//
// A fallback is part of the rate, and all of them are the rate at most. Nothing refilled the bucket meanwhile, nor does
// more than epsilon until holders have declared. So what a holder spent of its fallback until then costs the bucket
// nothing. Of what it spent since, it pays its part by time.
func (x *step) redeclare(spent, held int64) {
	suspect := x.t < x.Suspect || x.Unsure > 0
	switch {
	case x.r.ExpiresIn > 0 && !suspect:
		return
	case x.r.ExpiresIn == 0 && !(suspect && x.r.onFallback()):
		if x.r.onFallback() {
			spent = mulDiv(spent, min(x.t-x.Suspect, x.r.Elapsed), x.r.Elapsed)
		}
		x.Level = max(x.Level-spent, x.floor())
		return
	}
	if x.Algorithm == limit.FixedWindow {
		held = min(held, x.Withheld)
		x.Withheld -= held
	}
	x.Level = min(x.Level+held, x.burst)
}

// onFallback reports whether the holder went on out of contact, by what the store promised.
func (r *Renewal) onFallback() bool {
	return r.Alone && r.Trickle > 0 && r.Elapsed > 0 && r.Spec.Refills()
}

// hadTrickle is the trickle, or the fallback, that the holder had when the store forgot. It gets no more while the
// bucket is suspect, and a newcomer gets none.
func (x *step) hadTrickle() int64 {
	switch {
	case x.rec == nil && (x.r.ExpiresIn > 0 || x.r.onFallback()):
		return x.r.Trickle
	case x.rec != nil:
		return max(x.rec.Declared, x.rec.Lease.Trickle)
	}
	return 0
}
