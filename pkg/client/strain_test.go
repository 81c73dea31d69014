package client

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
)

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
		for range 5 {
			if told() < 4 {
				ask() // which finds some of the last still waiting
			}
		}
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
