package ledger

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// backlog is a store that has reports to fold, five of which are a block.
type backlog struct {
	Store
	mu      sync.Mutex
	waiting int
	coming  int // reports that come during each of the first twenty folds
	err     error
	folds   []time.Duration // when, since the beginning
	begun   time.Time
}

func (b *backlog) Fold(_ context.Context, now time.Time) (int, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.folds = append(b.folds, now.Sub(b.begun))
	if b.err != nil {
		return 0, false, b.err
	}
	n := min(b.waiting, 5)
	left := b.waiting > n
	if b.waiting -= n; len(b.folds) <= 20 {
		b.waiting += b.coming
	}
	return n, left, nil
}

// A folder drains what there is at once and then every interval; a failure is
// logged when it begins and when it ends.
func TestFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &backlog{waiting: 8, begun: time.Now()}
		var log bytes.Buffer
		f := NewFolder(b, 0, slog.New(slog.NewTextHandler(&log, nil)))
		folded := 0
		f.Observe = func(n int, _ time.Duration, err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			folded += n
		}
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		synctest.Wait()
		b.mu.Lock()
		if folded != 8 || len(b.folds) != 2 {
			t.Errorf("at once: folded %d in %d calls, want 8 in 2", folded, len(b.folds))
		}
		b.err = errors.New("away")
		b.mu.Unlock()
		time.Sleep(3*DefaultFoldEvery + time.Second)
		synctest.Wait()
		b.mu.Lock()
		if got := strings.Count(log.String(), "level=WARN"); got != 1 {
			t.Errorf("three failures were logged %d times, want once", got)
		}
		b.err, b.waiting = nil, 2
		b.mu.Unlock()
		time.Sleep(DefaultFoldEvery)
		synctest.Wait()
		b.mu.Lock()
		if folded != 10 || strings.Count(log.String(), "folding again") != 1 {
			t.Errorf("afterwards: folded %d, want 10; log:\n%s", folded, log.String())
		}
		if last := b.folds[len(b.folds)-1]; last != 4*DefaultFoldEvery {
			t.Errorf("last fold after %v, want %v", last, 4*DefaultFoldEvery)
		}
		b.mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: got %v, want nil", err)
		}
	})
}

// What comes while it folds waits for the next interval, however fast it comes.
func TestFolderLeavesWhatComesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*DefaultFoldEvery+time.Second)
		defer cancel()
		b := &backlog{waiting: 8, coming: 1, begun: time.Now()}
		if err := NewFolder(b, 0, nil).Run(ctx); err != nil {
			t.Errorf("run: got %v, want nil", err)
		}
		want := []time.Duration{0, 0, DefaultFoldEvery, 2 * DefaultFoldEvery}
		if !slices.Equal(b.folds, want) {
			t.Errorf("folded after %v, want %v", b.folds, want)
		}
	})
}
