package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/lease"
)

// slowStore answers each batch after a millisecond with the renewals' numbers.
type slowStore struct {
	mu      sync.Mutex
	batches [][]lease.Renewal
	hang    bool
}

func (s *slowStore) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	s.mu.Lock()
	s.batches = append(s.batches, renewals)
	hang := s.hang
	s.mu.Unlock()
	answers := make([]lease.Answer, len(renewals))
	if hang {
		<-ctx.Done()
		return unavailable(len(renewals), lease.ErrUnavailable)
	}
	time.Sleep(time.Millisecond) // virtual: the store's time
	for i := range renewals {
		answers[i].Grant.Number = renewals[i].Number
	}
	return answers
}

// Calls that come while batches are under way go out together; each gets its own
// answers, in its order.
func TestJoinerJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{}
		j := NewJoiner(store)
		const calls = 200
		var all sync.WaitGroup
		for c := range int64(calls) {
			all.Go(func() {
				var renewals []lease.Renewal
				for i := range c%5 + 1 {
					renewals = append(renewals, lease.Renewal{Key: fmt.Sprint(c), Number: 100*c + i})
				}
				for i, a := range j.Renew(t.Context(), renewals) {
					if a.Err != nil || a.Grant.Number != 100*c+int64(i) {
						t.Errorf("call %d, renewal %d: got %d, %v, want its own answer", c, i, a.Grant.Number, a.Err)
					}
				}
			})
		}
		all.Wait()
		if n := len(store.batches); n > 2*joinWidth {
			t.Errorf("%d calls at once went out in %d batches, want at most %d", calls, n, 2*joinWidth)
		}
		sum := 0
		for _, b := range store.batches {
			sum += len(b)
		}
		if want := calls / 5 * 15; sum != want {
			t.Errorf("%d renewals executed, want each of %d once", sum, want)
		}
		// Alone, a call waits for nobody.
		begin := time.Now()
		j.Renew(t.Context(), []lease.Renewal{{Number: 1}})
		if took := time.Since(begin); took != time.Millisecond {
			t.Errorf("a call alone took %s, want the store's millisecond", took)
		}
		if err := j.Close(); err != nil || j.free != joinWidth || j.queued != 0 {
			t.Errorf("at rest: %v, %d free, %d queued, want %d free and nothing queued", err, j.free, j.queued, joinWidth)
		}
	})
}

// A store that hangs costs each caller its own deadline and no more, holds a bounded
// number of renewals, and is free again when it answers.
func TestJoinerWithAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{hang: true}
		j := NewJoiner(store)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		const each = 800
		refused := make([]bool, joinWaiting/each+20)
		for c := range refused {
			all.Go(func() {
				begin := time.Now()
				answers := j.Renew(ctx, make([]lease.Renewal, each))
				if len(answers) != each || !errors.Is(answers[0].Err, lease.ErrUnavailable) {
					t.Errorf("call %d: got %d answers, %v, want %d times unavailable", c, len(answers), answers[0].Err, each)
				}
				refused[c] = time.Since(begin) == 0
			})
		}
		all.Wait()
		n := 0
		for _, r := range refused {
			if r {
				n++
			}
		}
		if n == 0 || n == len(refused) {
			t.Errorf("%d of %d calls refused at once, want those beyond the bound", n, len(refused))
		}
		store.mu.Lock()
		store.hang = false
		store.mu.Unlock()
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if a := j.Renew(t.Context(), []lease.Renewal{{Number: 7}}); a[0].Err != nil || a[0].Grant.Number != 7 {
			t.Errorf("when it answers again: got %+v", a[0])
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
