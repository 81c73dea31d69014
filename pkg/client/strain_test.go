package client

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/memstore"
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

// An agent that waits for a server which is busy tells it so, and shows it, and no more once all is well.
func TestTheServerIsToldOfItsStrain(t *testing.T) {
	const users = 1_000
	bubble(t, plans(1, perUser()), func(t *testing.T, s *fake) {
		s.set(func(f *fake) { f.leases, f.work = memstore.New(), 10*time.Millisecond })
		c := dial(t, s)
		ask := func() {
			var wg sync.WaitGroup
			for n := range users {
				wg.Go(func() { c.Allow(t.Context(), tenant("a"), Attribute{"user", fmt.Sprint(n)}) })
			}
			wg.Wait()
		}
		told := func() (n int32) {
			s.set(func(f *fake) { n = f.strain })
			return n
		}
		ask()
		ask() // which finds some of the first still waiting
		if st := c.Stats(); st.Strain < 4 || told() < 4 {
			t.Errorf("with a thousand buckets to be leased, a hundred a second: strain is %.1f, the server was told %d; want 4 at least", st.Strain, told())
		}
		s.set(func(f *fake) { f.work = 0 })
		time.Sleep(10 * time.Minute)
		ask()
		if st := c.Stats(); st.Strain > 1.5 || told() > 1 {
			t.Errorf("long after: strain is %.1f, the server was told %d; want 1", st.Strain, told())
		}
		shut(t, c)
	})
}
