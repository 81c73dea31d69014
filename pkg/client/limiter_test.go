package client

import (
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/session"
)

// While a bucket denies for certain, those who ask a handle of it take nothing of its stock, and each is counted;
// what there is again is admitted at once, and changes are followed as ever.
func TestHandleDeniedForCertain(t *testing.T) {
	bubble(t, plans(1, requests(10, 10)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		l, err := c.Limiter(t.Context(), tenant("a"))
		if err != nil {
			t.Fatal(err)
		}
		var admitted, denied int64
		ask := func(n int) (got int64) {
			for range n {
				if l.Allow(t.Context()).Allowed {
					got++
				} else {
					denied++
				}
			}
			admitted += got
			return got
		}
		e := l.only.Load()
		for i := 0; ; i++ {
			if _, shut := e.Shut(c.reg.Now()); shut {
				denied++ // it counts as one
				break
			}
			if ask(1); i > 1000 {
				t.Fatal("the bucket never denies for certain")
			}
		}
		ask(2000) // from which on denials are counted apart
		was := e.State(0).Tokens
		for range 3 {
			if got := ask(10_000); got != 0 {
				t.Fatalf("%d admitted where the bucket denies for certain", got)
			}
		}
		if e.State(0).Tokens != was {
			t.Error("a denial that was certain took from the stock")
		}
		for range 20 {
			time.Sleep(time.Second)
			if got := ask(5); got == 0 {
				t.Fatalf("%d of 5 admitted a second later", got)
			}
			ask(100)
		}
		if most := int64(10 + 21*10); admitted > most*105/100 {
			t.Errorf("admitted %d, want at most %d", admitted, most)
		}
		c.session.Ask((*session.Loop).Collect)
		if st := c.Counters(); st.Denied != denied || st.Admitted != admitted {
			t.Errorf("counted %d admitted and %d denied, want %d and %d", st.Admitted, st.Denied, admitted, denied)
		}

		ask(100)
		s.flip(limit.Switches{Denied: []string{"a"}})
		time.Sleep(2 * time.Second)
		if got := ask(10); got != 0 || l.only.Load() != nil {
			t.Errorf("%d admitted of a tenant that is switched off", got)
		}
		s.flip(limit.Switches{})
		time.Sleep(2 * time.Second)
		if got := ask(5); got == 0 {
			t.Error("none admitted of a tenant that is switched on again")
		}
		shut(t, c)
	})
}

// Whatever resolves a handle while something releases it, what it goes by is pinned.
func TestHandleResolvedAsItIsReleased(t *testing.T) {
	bubble(t, plans(1, requests(100, 100)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		l, err := c.Limiter(t.Context(), tenant("a"))
		if err != nil {
			t.Fatal(err)
		}
		for range 20_000 {
			var both sync.WaitGroup
			both.Go(l.resolve)
			both.Go(func() { l.goBy(nil) })
			both.Wait()
			if settled := l.only.Load() != nil; settled != (l.pin.entry != nil) {
				t.Fatalf("the handle goes by a bucket: %t, and pins one: %t", settled, l.pin.entry != nil)
			}
		}
		shut(t, c)
	})
}
