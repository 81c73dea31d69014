package authn

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// slowParents says who is above whom after a while.
type slowParents struct {
	Tree
	after atomic.Int64 // a time.Duration
	asked atomic.Int64
}

func (s *slowParents) Parents(ctx context.Context, ids, _ []string) ([]string, error) {
	s.asked.Add(1)
	select {
	case <-time.After(time.Duration(s.after.Load())):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if slices.Contains(ids, "shop") {
		return []string{"org"}, nil
	}
	return nil, nil
}

// Renewals under a key that is for some tenants do not wait for a policy store that hangs, nor for one another: until
// it is known which tenants are above, it is not known of others what they are, and afterwards what was known holds.
func TestRenewalsDoNotWaitForTheTenantsAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(slowParents)
		store.after.Store(int64(time.Hour))
		key, err := NewScope(&policystore.Key{ID: "k", Scope: policystore.Scope{Tenants: []string{"shop"}}}, store)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(when string, want Reach, most time.Duration) {
			t.Helper()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					begun := time.Now()
					if got := key.Reach(t.Context(), []string{"shop", "org"}); got[0] != Within || got[1] != want {
						t.Errorf("%s: got %v, want %v of the one above", when, got, want)
					}
					if took := time.Since(begun); took > most {
						t.Errorf("%s: it took %v, want at most %v", when, took, most)
					}
				})
			}
			all.Wait()
		}
		ask("while the store hangs", Undecided, aboveWait)
		ask("while it goes on hanging", Undecided, 0)
		time.Sleep(aboveTimeout + aboveEvery)
		store.after.Store(int64(10 * time.Millisecond))
		ask("once it answers", Above, aboveWait)
		store.asked.Store(0)
		ask("from memory", Above, 0)
		if n := store.asked.Load(); n != 0 {
			t.Errorf("the store was asked %d times for what is known", n)
		}
		store.after.Store(int64(time.Hour))
		time.Sleep(aboveEvery)
		key.moved("org", "holding")
		ask("when those above changed, and it hangs", Above, aboveWait)
		ask("while it hangs on", Above, 0)
		time.Sleep(aboveTimeout)
	})
}
