package renewal

import (
	"math"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
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

// What renewals cost is strain beyond so many a second, as many times as they are more than they are worth, and no more than the most that is worth it. It
// stays while there would be as many without it.
func TestStrainOfWhatRenewalsCost(t *testing.T) {
	for _, c := range []struct {
		what              string
		before            float64
		renewals, decided int64 // in a minute
		want              float64
	}{
		{"nothing", 1, 0, 0, 1},
		{"few, each of a unit", 1, 60 * spared, 60 * spared, 1},
		{"as many as they are worth", 1, 60 * (spared + 100), 60 * 100 * worthwhile, 1},
		{"twice as many", 1, 60 * (spared + 100), 60 * 50 * worthwhile, 2},
		{"each of a unit", 1, 60 * 1000, 60 * 1000, dearest},
		{"of no unit", 1, 60 * 1000, 0, dearest},
		{"as many as are worth it, for there is strain", 3, 60 * 100, 60 * 100 * worthwhile, 3},
		{"a third of what would be few, for there is strain", 3, 60 * spared / 3, 60 * spared / 3, 3},
	} {
		now := int64(1_000_000_000)
		var s strain
		s.cost(now, 1_000_000, 1) // what was before tells nothing
		if got := s.now(now); got != 1 {
			t.Errorf("%s: %.2f at first, want 1", c.what, got)
		}
		now += 60_000_000
		s.level, s.at = c.before, now
		s.cost(now, 1_000_000+c.renewals, 1+c.decided)
		if got := s.now(now); math.Abs(got-c.want) > 0.01 {
			t.Errorf("%s: %.2f, want %.2f", c.what, got, c.want)
		}
		now += 5 * relief
		if s.cost(now, 1_000_000+c.renewals, 1+c.decided); s.now(now) > 1.1 {
			t.Errorf("%s: long after nothing was renewed any more it is %.2f", c.what, s.now(now))
		}
	}
}
