package ledger

import (
	"context"
	"log/slog"
	"time"
)

// DefaultFoldEvery is how often a Folder looks for reports to fold.
const DefaultFoldEvery = 10 * time.Second

// foldTimeout ends a fold that the engine neither finishes nor refuses. The largest
// block takes seconds.
const foldTimeout = 2 * time.Minute

// Folder folds on a schedule. Every server runs one. The engine lets only one of them fold at a time. When that
// one dies, another goes on within an interval.
type Folder struct {
	store Store
	every time.Duration
	log   *slog.Logger
	// Observe, if set before Run, is told of every fold that did something. It gets how many reports were
	// folded and how long that took, or why it failed.
	Observe func(reports int, took time.Duration, err error)
}

// NewFolder returns a folder; every 0 means DefaultFoldEvery, log nil is silent.
func NewFolder(store Store, every time.Duration, log *slog.Logger) *Folder {
	if every <= 0 {
		every = DefaultFoldEvery
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Folder{store: store, every: every, log: log}
}

// Run folds what there is at once and then every interval, until ctx ends; then it returns nil. Unfolded
// reports are read as such, and folded by the next leader. Reports that come during a fold wait for the next
// interval. A fold writes every key of its reports, so folding reports one by one would cost as much each as
// all at once. A failing engine is logged when that begins and when it ends.
func (f *Folder) Run(ctx context.Context) error {
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	failing := false
	for {
		err := f.drain(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			f.log.Warn("ledger: folding fails, will go on trying", "error", err)
		case err == nil && failing:
			f.log.Info("ledger: folding again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (f *Folder) drain(ctx context.Context) error {
	for ctx.Err() == nil {
		begun := time.Now()
		n, left, err := f.fold(ctx, begun)
		if f.Observe != nil && (n > 0 || err != nil) && ctx.Err() == nil {
			f.Observe(n, time.Since(begun), err)
		}
		if !left || err != nil {
			return err
		}
	}
	return nil
}

func (f *Folder) fold(ctx context.Context, now time.Time) (int, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, foldTimeout)
	defer cancel()
	return f.store.Fold(ctx, now)
}
