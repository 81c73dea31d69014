package session

import (
	"math"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// strain is how many times as long as otherwise leases are to last. The agent tells the server. It is how many times as long as it should
// what is asked now takes until it is answered: fewer renewals are asked for then, and those that requests wait for come sooner. And
// it is how many times as much as they are worth renewals cost, though the server answers them all. It rises at once and goes
// slowly, as leases do; were it gone with what it brought about, that would come back.
type strain struct {
	level float64 // as of at; 0 for none yet
	at    int64   // microseconds

	// What was renewed and decided as of the last look at what renewals cost.
	renewals, decided, looked int64
}

const (
	// relief is the time constant, in microseconds, with which strain goes: longer leases show within one of these.
	relief = 30_000_000
	// worthwhile is how many units are to be decided for each renewal, about: of the processors of agent, server and Redis a renewal
	// takes what so many decisions do (docs/performance.md).
	worthwhile = 512
	// notable is the time, in microseconds, in which renewals come evenly enough to be held against what was decided.
	notable = 5_000_000
	// spared is how many renewals a second cost too little for tokens to lie elsewhere than they are asked for.
	spared = 16
	// dearest is the most strain that costs are worth: more saves little more, and errors are below two percent (docs/error-bound.md).
	dearest = 4
)

// now returns it: 1 while all is well.
func (s *strain) now(now int64) float64 {
	return 1 + max(s.level-1, 0)*math.Exp(-float64(now-s.at)/relief)
}

// note takes it from how long a call took, as a multiple of what it may, and how many calls as large as it would be now waiting.
func (s *strain) note(now int64, took, waiting float64) {
	s.raise(now, min(took*(1+waiting), lease.MaxStrain))
}

// cost takes it from what was renewed, and how many units were decided, in all until now. Without the strain that there is they would have been as
// many times as many: so it stays while there is a reason for it.
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
