package lease

import "github.com/f4ee788f/quota/internal/core/limit"

// A store may forget: a failover loses its last writes, a wiped shard everything. A
// holder proves it: it has a live lease that the store does not know, or was answered
// what the store does not remember. From then on, for as long as such leases can live, the bucket
// is suspect. What it holds is taken to be out, with the forgotten; a
// holder that comes back declares its lease, and goes on with what it had and no more; others share
// what epsilon allows. Then all is as before.

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
	Behind  Why = "behind"  // it went on from before what was seen of it
	Another Why = "another" // what it holds is of a history that nobody knows
	Evicted Why = "evicted" // buckets were dropped for want of memory
)

// Whys are all of them, for counters.
func Whys() []Why { return []Why{Emptied, Behind, Another, Evicted} }

// forget begins the bucket again at this proof.
func (x *step) forget() {
	spec := &x.r.Spec
	x.Suspect = x.t + LongTerm
	x.Generation = following(max(x.Generation, x.r.Generation))
	within := whole(mulDiv(x.burst, spec.EpsilonPPM, limit.Micro))
	switch x.Algorithm {
	case limit.FixedWindow, limit.Concurrency:
		// Nobody here knows what was used: that can be had, but not at once.
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

// following is the generation after one that the store had, or a holder named: its holders may name that one too.
func following(generation int64) int64 { return min(generation+1, maxCount) }

// withhold leaves no more than within to be granted.
func (x *step) withhold(within int64) {
	if x.Level > within {
		x.Withheld += x.Level - within
		x.Level = within
	}
}

// redeclare takes in a holder that the store does not know: what it holds, if it has a
// live lease, and what it spent, if not.
func (x *step) redeclare(spent, held int64) {
	if x.r.ExpiresIn == 0 {
		x.Level = max(x.Level-spent, x.floor())
		return
	}
	if x.t >= x.Suspect && x.Unsure == 0 {
		return
	}
	if x.Algorithm == limit.FixedWindow {
		held = min(held, x.Withheld)
		x.Withheld -= held
	}
	x.Level = min(x.Level+held, x.burst)
}

// declared is the trickle that the holder had when the store forgot: while the bucket is suspect it
// gets no more than that, and a newcomer none.
func (x *step) declared() int64 {
	switch {
	case x.rec == nil && x.r.ExpiresIn > 0:
		return x.r.Trickle
	case x.rec != nil:
		return max(x.rec.Declared, x.rec.Lease.Trickle)
	}
	return 0
}
