package lease

import (
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Flow returns the rate that is shared out, in whole micro-tokens a second and at least 1, and the capacity in
// micro-tokens. A limit that does not refill has a capacity and no rate.
func (p *Spec) Flow() (rate, burst int64) {
	if p.Refills() {
		return max(int64(p.Refill()), 1), p.Burst * limit.Micro
	}
	return 0, p.Units * limit.Micro
}

// Refill is what a bucket gains, in micro-tokens a second, not rounded: one token a
// month is less than half a micro-token a second. Windows, logs and slots do not refill.
func (p *Spec) Refill() float64 {
	if !p.Refills() {
		return 0
	}
	return float64(float64(p.Units)*(limit.Micro*limit.Micro)) / float64(p.Period)
}

// Refills reports whether the limit refills at a rate of its own.
func (p *Spec) Refills() bool {
	return p.Algorithm == limit.TokenBucket || p.Algorithm == limit.LeakyBucket
}

// Windowed reports whether the limit counts in windows that are independent of each other.
func (p *Spec) Windowed() bool { return p.Algorithm == limit.FixedWindow }

// Sliding reports whether the limit weighs two windows.
func (p *Spec) Sliding() bool { return p.Algorithm == limit.SlidingWindow }

// slack is epsilon's part in the store: half of it, of a second's rate and the burst.
func (p *Spec) slack(rate, burst int64) int64 {
	if rate == 0 && !p.Sliding() {
		return 0
	}
	return mulDiv(rate+burst, p.EpsilonPPM, 2*limit.Micro)
}

// tolerance is by how much the bucket's clock may be ahead of a holder's, in microseconds: what refills
// meanwhile is no more than the slack.
func (p *Spec) tolerance() int64 {
	rate, burst := p.Flow()
	if rate == 0 {
		return leap // leases end so much sooner, at the most
	}
	return min(lasts(p.slack(rate, burst), float64(rate)), MaxStep)
}

// wayBack is how long an agent may take to find a server that answers again, in microseconds: it tries once a second.
const wayBack = 2_000_000

// hold is how long a holder's share is kept for it after its lease, at the least; its term, if that is longer. Who hears
// nothing goes over to its part of each further fixed window, unless the limit is strict. A server that hung for a
// moment must not have granted that part to others.
func (p *Spec) hold() int64 {
	hold := p.Hold
	if p.Windowed() && p.EpsilonPPM > 0 {
		hold = max(hold, wayBack)
	}
	return min(hold, MaxHold)
}

// longest is the longest that a limit may say of anything, in microseconds.
const longest = int64(limit.MaxPer / time.Microsecond)

// Travels says that the store hears of the renewal so many microseconds from now, as far as the holder knows.
func (r *Renewal) Travels(micros int64) {
	if r.VoidAgo > 0 {
		r.VoidAgo += micros
	}
}

// Check reports what contradicts itself in r or breaks a bound; the error wraps ErrInvalid.
func (r *Renewal) Check() error {
	if err := r.Spec.check(); err != nil {
		return err
	}
	switch {
	case r.Key == "" || len(r.Key) > 512:
		return bad("the key's length", int64(len(r.Key)))
	case r.Holder == "" || len(r.Holder) > 256:
		return bad("the holder's length", int64(len(r.Holder)))
	case r.Number < 1 || r.Number > maxCount:
		return bad("the number", r.Number)
	case r.Began < 1 || r.Began > r.Number:
		return bad("the conversation's first number", r.Began)
	case r.Admitted < 0 || r.Admitted > maxUnits:
		return bad("admitted", r.Admitted)
	case r.Heard < 0 || r.Heard > maxCount:
		return bad("what was heard", r.Heard)
	case r.Denied < 0 || r.Denied > maxUnits:
		return bad("denied", r.Denied)
	case r.Told < 0 || r.Told > r.Admitted:
		return bad("told", r.Told)
	case r.Held < 0 || r.Held > limit.MaxUnits:
		return bad("held", r.Held)
	case r.Fraction < 0 || r.Fraction >= limit.Micro:
		return bad("the fraction of a token", r.Fraction)
	case r.Waiting < 0 || r.Waiting > limit.MaxUnits:
		return bad("waiting", r.Waiting)
	case r.Largest < 0 || r.Largest > r.Waiting:
		return bad("the largest that waits", r.Largest)
	case r.Reserved < 0 || r.Reserved > r.Waiting:
		return bad("what is reserved", r.Reserved)
	case r.InUse < 0 || r.InUse > limit.MaxUnits:
		return bad("in use", r.InUse)
	case r.Strain < 0 || r.Strain > MaxStrain:
		return bad("the strain", r.Strain)
	case r.Now < 0 || r.Now > maxCount || r.Window < 0 || r.Window > maxCount:
		return bad("a time", max(r.Now, r.Window))
	case r.ExpiresIn < 0 || r.ExpiresIn > maxCount || r.Trickle < 0 || r.Trickle > maxCount || r.Generation < 0 || r.Generation > maxCount ||
		r.Elapsed < 0 || r.Elapsed > maxCount/4: // which is added to a time
		return bad("what is left of the lease", max(r.ExpiresIn, r.Trickle, r.Generation, r.Elapsed))
	case r.Void < 0 || r.Void > limit.MaxUnits:
		return bad("what was void", r.Void)
	case r.VoidAgo < 0 || r.VoidAgo > maxCount/4 || (r.VoidAgo > 0) != (r.Void > 0):
		return bad("how long ago what was void came", r.VoidAgo)
	case r.Within < 0 || r.Within > maxCount:
		return bad("within what time it admits", r.Within)
	case r.Figure.Used < 0 || r.Figure.Used > maxUnits || r.Figure.Window < 0 || r.Figure.Window > maxCount || r.Figure.Through < 0 || r.Figure.Through > maxCount:
		return bad("the ledger's figure", r.Figure.Used)
	case r.Memory.Since < 0 || r.Memory.Since > maxCount:
		return bad("the store's memory", r.Memory.Since)
	}
	return nil
}

func (p *Spec) check() error {
	slots, log := p.Algorithm == limit.Concurrency, p.Algorithm == limit.SlidingWindowLog
	switch {
	case p.Algorithm < limit.TokenBucket || p.Algorithm > limit.Concurrency:
		return bad("the algorithm", int64(p.Algorithm))
	case p.Units < 1 || p.Units > limit.MaxUnits:
		return bad("the rate's units", p.Units)
	case log && p.Units > limit.MaxLog:
		return bad("the units of a sliding window log", p.Units)
	case p.Period < 1_000 && !(slots && p.Period == 0) || p.Period > longest:
		return bad("the rate's period", p.Period)
	case p.Burst < 0 || p.Burst > limit.MaxUnits:
		return bad("the burst", p.Burst)
	case p.EpsilonPPM < 0 || p.EpsilonPPM > limit.Micro:
		return bad("epsilon", p.EpsilonPPM)
	case !slots && !limit.Flows(p.Units, p.Period):
		return bad("the rate a second", mulDiv(p.Units, limit.Micro, p.Period))
	case (p.Windowed() || p.Sliding()) && (p.WindowStart < 1 || p.WindowStart >= p.WindowEnd || p.WindowEnd >= p.NextWindowEnd || p.NextWindowEnd > maxCount):
		return bad("the window's start", p.WindowStart)
	case p.Ledgered && !p.Windowed():
		return bad("the algorithm of what the ledger knows", int64(p.Algorithm))
	case p.Borrow < 0 || p.Borrow > limit.MaxUnits || log && p.Borrow > limit.MaxLog:
		return bad("what may be borrowed", p.Borrow)
	case p.Lockout < 0 || p.Lockout > longest:
		return bad("the lockout", p.Lockout)
	case p.Hold < 0 || p.Hold > longest:
		return bad("the hold", p.Hold)
	}
	return nil
}

func bad(what string, v int64) error {
	return fmt.Errorf("%w: %s is %d", ErrInvalid, what, v)
}

const (
	maxCount = 1 << 53 // what a double holds exactly
	// maxUnits bounds an agent's counts of one bucket, far above what it can reach. Differences of counts stay
	// below 2^53 in micro-tokens, for the step caps them.
	maxUnits = 1 << 53
)
