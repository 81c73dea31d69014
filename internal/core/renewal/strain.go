package renewal

import (
	"math"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// strain is how many times as long as usual leases should last. The agent tells the server. It rises for two reasons:
// answers take longer than they should, or renewals cost more than they are worth. Longer leases need fewer renewals, so
// those that requests wait for come sooner. It rises at once and goes slowly: were it gone with its effect, its reason
// would come back.
type strain struct {
	level float64 // as of at; 0 for none yet
	at    int64   // microseconds

	// As of the last look at what renewals cost.
	renewals, decided, looked int64
}

const (
	// relief is the time constant, in microseconds, with which strain goes: the effect of longer leases shows within it.
	relief = 30_000_000
	// worthwhile is about how many units should be decided for each renewal. It costs agent, server and Redis as much
	// as so many decisions (docs/performance.md).
	worthwhile = 512
	// notable is the time, in microseconds, over which renewals and decisions are compared.
	notable = 5_000_000
	// spared is how many renewals a second cost too little to make leases longer.
	spared = 16
	// dearest is the most strain that costs are worth: more saves little, and errors stay below two percent
	// (docs/error-bound.md).
	dearest = 4
)

// now returns it: 1 while all is well.
func (s *strain) now(now int64) float64 {
	return 1 + max(s.level-1, 0)*math.Exp(-float64(now-s.at)/relief)
}

// note takes it from how long a call took, as a multiple of what it may, and how many windows of renewals wait.
func (s *strain) note(now int64, took, waiting float64) {
	s.raise(now, min(took*(1+waiting), lease.MaxStrain))
}

// cost takes it from the renewals made and the units decided, in all until now. Without the present strain there would
// have been so many times as many renewals: so it stays while there is a reason for it.
func (s *strain) cost(now, renewals, decided int64) {
	if now-s.looked < notable {
		return
	}
	seconds := float64(now-s.looked) / float64(time.Second/time.Microsecond)
	dear, units := float64(renewals-s.renewals)*s.now(now)-spared*seconds, float64(decided-s.decided)
	if s.looked > 0 && dear > 0 {
		s.raise(now, min(dear*worthwhile/max(units, 1), dearest))
	}
	s.looked, s.renewals, s.decided = now, renewals, decided
}

func (s *strain) raise(now int64, to float64) { s.level, s.at = max(s.now(now), to), now }
