package client

import (
	"math"
	"testing"

	"github.com/f4ee788f/quota/internal/lease"
)

// Strain is how many times as long as it should what is asked now takes: it rises at once, is no less than 1 and no more than
// the most, and goes with the leases that it made long.
func TestStrain(t *testing.T) {
	var s strain
	now := int64(1_000_000_000)
	is := func(what string, want float64) {
		t.Helper()
		if got := s.now(now); math.Abs(got-want) > 0.01 {
			t.Errorf("%s: %.2f, want %.2f", what, got, want)
		}
	}
	is("before any call", 1)
	s.note(now, 0.2, 1)
	is("quick calls", 1)
	s.note(now, 1, 3)
	is("three calls wait for one", 4)
	s.note(now, 1, 0)
	is("at once after", 4)
	now += relief
	is("after a while", 1+3/math.E)
	s.note(now, 3, 0)
	is("slow calls", 3)
	s.note(now, 100, 100)
	is("the most", lease.MaxStrain)
	now += 100 * relief
	is("long after", 1)
}
