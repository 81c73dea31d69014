package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// engine is a commit function that can be held up and made to refuse reports.
type engine struct {
	gate    chan struct{} // nil: open
	mu      sync.Mutex
	batches []int
	poison  int64 // a report of this number fails whatever it is committed with
	err     error // of every transaction
}

func (e *engine) commit(ctx context.Context, reports []Report) ([]Receipt, error) {
	if e.gate != nil {
		select {
		case <-e.gate:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches = append(e.batches, len(reports))
	if e.err != nil {
		return nil, e.err
	}
	receipts := make([]Receipt, len(reports))
	for i, r := range reports {
		if e.poison > 0 && r.Seq == e.poison {
			return nil, errors.New("poison")
		}
		receipts[i] = Receipt{Status: Settled, NextSeq: r.Seq + 1}
	}
	return receipts, nil
}

// Calls that wait for a transaction are joined in the next one, and each has its own
// receipts.
func TestSettlerJoinsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{gate: make(chan struct{})}
		s := NewSettler(1, e.commit)
		call := func(seqs ...int64) {
			var reports []Report
			for _, n := range seqs {
				reports = append(reports, Report{Seq: n})
			}
			go func() {
				receipts, err := s.Settle(t.Context(), reports)
				if err != nil || len(receipts) != len(seqs) {
					t.Errorf("%v: got %v, %v", seqs, receipts, err)
					return
				}
				for i := range seqs {
					if receipts[i].NextSeq != seqs[i]+1 {
						t.Errorf("%v: receipt %d is of report %d", seqs, i, receipts[i].NextSeq-1)
					}
				}
			}()
			synctest.Wait()
		}
		call(1)
		call(2, 3)
		call(4)
		call(5, 6, 7)
		close(e.gate)
		synctest.Wait()
		if got, want := fmt.Sprint(e.batches), "[1 6]"; got != want {
			t.Errorf("transactions of: got %s, want %s", got, want)
		}
		s.Close()
		if _, err := s.Settle(t.Context(), []Report{{Seq: 8}}); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("after close: got %v, want ErrClosed", err)
		}
	})
}

// A report that the engine cannot take fails alone, in its call and out of it.
func TestSettlerKeepsFailuresApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{gate: make(chan struct{}), poison: 3}
		s := NewSettler(1, e.commit)
		answers := make([][]Receipt, 3)
		errs := make([]error, 3)
		for i, reports := range [][]Report{{{Seq: 1}}, {{Seq: 2}, {Seq: 3}, {Seq: 4}}, {{Seq: 5}}} {
			go func() { answers[i], errs[i] = s.Settle(t.Context(), reports) }()
			synctest.Wait()
		}
		close(e.gate)
		synctest.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for i, want := range [][]Status{{Settled}, {Settled, Unavailable, Settled}, {Settled}} {
			for j := range want {
				if got := answers[i][j].Status; got != want[j] {
					t.Errorf("call %d report %d: got status %d, want %d", i, j, got, want[j])
				}
			}
		}
		s.Close()
	})
}

// An engine that is away fails all that wait at once, and no call alone again.
func TestSettlerUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{gate: make(chan struct{}), err: fmt.Errorf("%w: away", ErrUnavailable)}
		s := NewSettler(1, e.commit)
		errs := make([]error, 3)
		for i := range errs {
			go func() { _, errs[i] = s.Settle(t.Context(), []Report{{Seq: 1}, {Seq: 2}}) }()
			synctest.Wait()
		}
		close(e.gate)
		synctest.Wait()
		for i, err := range errs {
			if !errors.Is(err, ErrUnavailable) {
				t.Errorf("call %d: got %v, want ErrUnavailable", i, err)
			}
		}
		if got, want := fmt.Sprint(e.batches), "[2 4]"; got != want {
			t.Errorf("transactions of: got %s, want %s", got, want)
		}
		s.Close()
	})
}

// A caller that gives up is answered at once, and the reports that it left are still settled. An engine that
// hangs is given up after commitTimeout.
func TestSettlerCallersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{gate: make(chan struct{})}
		s := NewSettler(1, e.commit)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := s.Settle(ctx, []Report{{Seq: 1}}); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ErrUnavailable for a deadline", err)
		}
		if got := time.Since(begun); got != time.Second {
			t.Errorf("gave up after %v, want 1s", got)
		}
		if _, err := s.Settle(t.Context(), []Report{{Seq: 2}}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("behind an engine that hangs: got %v, want ErrUnavailable", err)
		}
		if got, want := time.Since(begun), 2*commitTimeout; got != want {
			t.Errorf("gave up after %v, want %v", got, want)
		}
		s.Close()
	})
}

// What waits is bounded: beyond it a call is refused at once.
func TestSettlerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{gate: make(chan struct{})}
		s := NewSettler(1, e.commit)
		const each = 256
		for range 1 + maxWaiting/each {
			go func() {
				if _, err := s.Settle(t.Context(), make([]Report, each)); err != nil {
					t.Errorf("within the bound: %v", err)
				}
			}()
			synctest.Wait()
		}
		if _, err := s.Settle(t.Context(), make([]Report, 1)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("beyond the bound: got %v, want ErrUnavailable", err)
		}
		close(e.gate)
		synctest.Wait()
		if _, err := s.Settle(t.Context(), make([]Report, 1)); err != nil {
			t.Errorf("when it has drained: %v", err)
		}
		for _, n := range e.batches {
			if n > maxBatch {
				t.Errorf("a transaction of %d reports, at most %d are joined", n, maxBatch)
			}
		}
		s.Close()
	})
}
