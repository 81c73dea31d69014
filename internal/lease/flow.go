package lease

import (
	"fmt"

	"github.com/f4ee788f/quota/internal/limit"
)

// MaxFlow bounds a rate, in tokens a second: in micro-tokens it stays below 2^53.
const MaxFlow = 1_000_000_000

// Flow returns what the step reckons with: the rate that is shared out, in whole
// micro-tokens a second and at least 1, and the capacity in micro-tokens. A
// windowed limit has a capacity and no rate.
func (p *Spec) Flow() (rate, burst int64) {
	if p.Windowed() {
		return 0, p.Units * limit.Micro
	}
	return max(int64(p.Refill()), 1), p.Burst * limit.Micro
}

// Refill is what a bucket gains, in micro-tokens a second, not rounded: one token a
// month is less than half a micro-token a second. Windows do not refill.
func (p *Spec) Refill() float64 {
	if p.Windowed() {
		return 0
	}
	return float64(float64(p.Units)*(limit.Micro*limit.Micro)) / float64(p.Period)
}

// Windowed reports whether the limit counts in windows instead of refilling.
func (p *Spec) Windowed() bool { return p.Algorithm == limit.FixedWindow }

// Check reports what contradicts itself in r or breaks a bound; the error wraps ErrInvalid.
func (r *Renewal) Check() error {
	p := &r.Spec
	bad := func(what string, v int64) error {
		return fmt.Errorf("%w: %s is %d", ErrInvalid, what, v)
	}
	switch {
	case r.Key == "" || len(r.Key) > 512:
		return bad("the key's length", int64(len(r.Key)))
	case r.Holder == "" || len(r.Holder) > 256:
		return bad("the holder's length", int64(len(r.Holder)))
	case p.Algorithm != limit.TokenBucket && p.Algorithm != limit.FixedWindow:
		return bad("the algorithm", int64(p.Algorithm))
	case p.Units < 1 || p.Units > limit.MaxUnits:
		return bad("the rate's units", p.Units)
	case p.Period < 1_000 || p.Period > 366*86400*1_000_000:
		return bad("the rate's period", p.Period)
	case p.Burst < 0 || p.Burst > limit.MaxUnits:
		return bad("the burst", p.Burst)
	case p.EpsilonPPM < 0 || p.EpsilonPPM > limit.Micro:
		return bad("epsilon", p.EpsilonPPM)
	case !p.Windowed() && mulDiv(p.Units, limit.Micro, p.Period) > MaxFlow:
		return bad("the rate a second", mulDiv(p.Units, limit.Micro, p.Period))
	case p.Windowed() && (p.WindowStart < 1 || p.WindowStart >= p.WindowEnd || p.WindowEnd >= p.NextWindowEnd):
		return bad("the window's start", p.WindowStart)
	case r.Number < 1 || r.Number > maxCount:
		return bad("the number", r.Number)
	case r.Began < 1 || r.Began > r.Number:
		return bad("the conversation's first number", r.Began)
	case r.Admitted < 0 || r.Admitted > maxUnits:
		return bad("admitted", r.Admitted)
	case r.Denied < 0 || r.Denied > maxUnits:
		return bad("denied", r.Denied)
	case r.Told < 0 || r.Told > r.Admitted:
		return bad("told", r.Told)
	case r.Held < 0 || r.Held > limit.MaxUnits:
		return bad("held", r.Held)
	case r.Waiting < 0 || r.Waiting > limit.MaxUnits:
		return bad("waiting", r.Waiting)
	case r.Now < 0 || r.Now > maxCount || r.Window < 0 || r.Window > maxCount:
		return bad("a time", max(r.Now, r.Window))
	case r.ExpiresIn < 0 || r.ExpiresIn > maxCount || r.Trickle < 0 || r.Trickle > maxCount || r.Generation < 0 || r.Generation > maxCount:
		return bad("what is left of the lease", max(r.ExpiresIn, r.Trickle, r.Generation))
	}
	return nil
}

const (
	maxCount = 1 << 53 // what a double holds exactly
	// maxUnits bounds an agent's counts of one bucket: far above what it can count, and
	// differences of it stay below 2^53 in micro-tokens (the step caps them).
	maxUnits = 1 << 53
)
