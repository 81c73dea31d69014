package leasing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// slowStore answers each batch after a millisecond with the renewals' numbers.
type slowStore struct {
	mu      sync.Mutex
	batches [][]lease.Renewal
	hang    bool
	under   map[string]int // batches with this bucket that are under way
	most    int
}

func (s *slowStore) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	s.mu.Lock()
	s.batches = append(s.batches, renewals)
	hang := s.hang
	if s.under == nil {
		s.under = make(map[string]int)
	}
	keys := make(map[string]bool)
	for i := range renewals {
		keys[renewals[i].Key] = true
	}
	for key := range keys {
		s.under[key]++
		s.most = max(s.most, s.under[key])
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for key := range keys {
			s.under[key]--
		}
	}()
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

// The renewals of one bucket that come while one is under way wait for it, and go together, in their order; those
// of other buckets do not wait for them.
func TestOneVisitOfABucketAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{}
		j := NewJoiner(store)
		const calls = 100
		var all sync.WaitGroup
		for c := range int64(calls) {
			all.Go(func() {
				time.Sleep(time.Duration(c) * time.Microsecond) // all of them within the first visit
				begin := time.Now()
				renewals := []lease.Renewal{{Key: fmt.Sprint(c), Number: c}, {Key: "busy", Number: c}, {Key: "busy", Number: 1000 + c}}
				for i, a := range j.Renew(t.Context(), renewals) {
					if a.Err != nil || a.Grant.Number != renewals[i].Number {
						t.Errorf("call %d, renewal %d: got %d, %v, want its own answer", c, i, a.Grant.Number, a.Err)
					}
				}
				if took := time.Since(begin); took > 2*time.Millisecond {
					t.Errorf("call %d took %s, want no more than the visit under way and its own", c, took)
				}
			})
		}
		all.Wait()
		var busy [][]int64
		for _, b := range store.batches {
			var numbers []int64
			for _, r := range b {
				if r.Key == "busy" {
					numbers = append(numbers, r.Number)
				}
			}
			if numbers != nil {
				busy = append(busy, numbers)
			}
		}
		if len(busy) != 2 || len(busy[0]) != 2 || len(busy[1]) != 2*calls-2 {
			t.Fatalf("the bucket was visited %d times, by %v, want twice: first for one call, then for all others", len(busy), busy)
		}
		for i, n := range busy[1] {
			if want := int64(1 + i/2 + i%2*1000); n != want {
				t.Fatalf("renewal %d of the second visit is %d, want %d: in the order in which they came", i, n, want)
			}
		}
		if store.most != 1 {
			t.Errorf("%d visits of one bucket at a time, want one", store.most)
		}
		if err := j.Close(); err != nil || len(j.lines) != 0 || len(j.ready) != 0 {
			t.Errorf("at rest: %v, %d lines, %d ready, want none", err, len(j.lines), len(j.ready))
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

// Who gave up is not served before those who still wait: after a store that hung, the first batch is of the living.
func TestJoinerForgetsWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{hang: true}
		j := NewJoiner(store)
		var all sync.WaitGroup
		renew := func(ctx context.Context, renewals []lease.Renewal) (answers []lease.Answer) {
			all.Go(func() { answers = j.Renew(ctx, renewals) })
			synctest.Wait()
			return answers
		}
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		for i := range joinWidth { // all are under way
			renew(short, []lease.Renewal{{Key: fmt.Sprint("hung", i), Number: 1}})
		}
		for i := range int64(20) {
			lost := make([]lease.Renewal, joinBatch)
			for k := range lost {
				lost[k] = lease.Renewal{Key: fmt.Sprint("lost", k%700), Number: 100 + i}
			}
			renew(short, lost)
		}
		all.Wait()
		store.mu.Lock()
		store.hang = false
		store.mu.Unlock()
		for i := range int64(3) {
			all.Go(func() {
				r := []lease.Renewal{{Key: "lost1", Number: 7 + i}, {Key: "other", Number: 70 + i}}
				for k, a := range j.Renew(t.Context(), r) {
					if a.Err != nil || a.Grant.Number != r[k].Number {
						t.Errorf("call %d, renewal %d: got %d, %v, want its own answer", i, k, a.Grant.Number, a.Err)
					}
				}
			})
		}
		all.Wait()
		if err := j.Close(); err != nil || len(j.lines) != 0 || len(j.ready) != 0 || j.queued != 0 || j.free != joinWidth {
			t.Errorf("at rest: %v, %d lines, %d ready, %d queued, %d free, want nothing and all free", err, len(j.lines), len(j.ready), j.queued, j.free)
		}
		for _, b := range store.batches[joinWidth:] {
			for _, r := range b {
				if r.Number >= 100 {
					t.Fatalf("%d of %s was sent, whose caller had left", r.Number, r.Key)
				}
			}
		}
	})
}
