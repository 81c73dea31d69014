package client

import (
	"math"

	"github.com/f4ee788f/quota/internal/lease"
)

// strain is how many times as long as it should what is asked now takes until it is answered. The agent tells the server, which lets leases
// last longer then: fewer renewals are asked for, and those that requests wait for come sooner. It rises at once and goes
// slowly, as leases do; were it gone with what it brought about, that would come back.
type strain struct {
	level float64 // as of at; 0 for none yet
	at    int64   // microseconds
}

// relief is the time constant, in microseconds, with which strain goes: longer leases show within one of these.
const relief = 30_000_000

// now returns it: 1 while all is well.
func (s *strain) now(now int64) float64 {
	return 1 + max(s.level-1, 0)*math.Exp(-float64(now-s.at)/relief)
}

// note takes it from how long a call took, as a multiple of what it may, and how many calls as large as it would be now waiting.
func (s *strain) note(now int64, took, waiting float64) {
	s.level, s.at = min(max(s.now(now), took*(1+waiting)), lease.MaxStrain), now
}
