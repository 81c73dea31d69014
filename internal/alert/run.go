package alert

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/policy/policystore"
)

const (
	// EvaluateEvery is how often the leader looks for a new block, and DeliverEvery for due deliveries.
	EvaluateEvery = 2 * time.Second
	DeliverEvery  = time.Second
	// leadTerm is how long a server leads without renewing its lead.
	leadTerm = 15 * time.Second
	task     = "alerts"
)

// Runner evaluates and delivers while it leads. Every server has one.
type Runner struct {
	Evaluator *Evaluator
	Deliverer *Deliverer
	Policy    policystore.Store
	Holder    string // a name that no other has
	Log       *slog.Logger

	mu      sync.Mutex
	renewed time.Time // when it last said that it leads; zero while it does not
}

// Run goes on until ctx ends, and returns when everything it started has ended.
func (r *Runner) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		r.every(ctx, EvaluateEvery, "looking for alerts", func(ctx context.Context) error {
			err := r.Evaluator.Round(ctx, r.leads)
			if errors.Is(err, errLost) {
				return nil
			}
			return err
		})
	})
	running.Go(func() {
		r.every(ctx, DeliverEvery, "delivering alerts", r.Deliverer.Round)
		r.Deliverer.Wait()
	})
	running.Wait()
}

// leads reports whether this server leads. It renews the lead well before its term ends, but not at each call. A server
// that was stopped for a while asks again.
func (r *Runner) leads(ctx context.Context) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.renewed.IsZero() && now.Sub(r.renewed) < leadTerm/3 {
		return true, nil
	}
	leads, err := r.Policy.Lead(ctx, task, r.Holder, leadTerm)
	if r.renewed = (time.Time{}); leads && err == nil {
		r.renewed = now
	}
	return leads, err
}

// every does something at a pace. It logs when failures begin and when they end.
func (r *Runner) every(ctx context.Context, pace time.Duration, what string, do func(context.Context) error) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	failing := false
	for {
		leads, err := r.leads(ctx)
		if leads && err == nil {
			err = do(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			r.Log.Warn(what+" fails, will go on trying", "error", err)
		case err == nil && failing:
			r.Log.Info(what + " works again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
