package server

import (
	"context"
	"fmt"
	"sync"

	"github.com/f4ee788f/quota/internal/lease"
)

const (
	// joinWidth is how many batches are under way at once: one is answered while the
	// next are on their way.
	joinWidth = 4
	// joinBatch is how many renewals go into a batch at most, and joinWaiting how many
	// wait; beyond that they are answered unavailable, and their agents come again.
	joinBatch   = 1_000
	joinWaiting = 64_000
)

// Joiner joins the renewals of concurrent calls into batches for a store across the
// network: a Redis node executes steps in pipelines of fifty at twice the rate of
// single ones. While nothing is under way a call goes out at once, alone.
type Joiner struct {
	store lease.Store

	mu      sync.Mutex
	waiting []*joined
	queued  int // renewals of waiting calls
	free    int // batches that may be begun
	running sync.WaitGroup
}

// joined is the renewals of one call.
type joined struct {
	renewals []lease.Renewal
	answers  []lease.Answer
	done     chan struct{}
}

// NewJoiner returns a joiner in front of store.
func NewJoiner(store lease.Store) *Joiner { return &Joiner{store: store, free: joinWidth} }

// Renew implements lease.Store. When ctx ends first the renewals may still be
// executed, which their numbers make harmless.
func (j *Joiner) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	if len(renewals) == 0 {
		return nil
	}
	c := &joined{renewals: renewals, done: make(chan struct{})}
	if !j.enqueue(c) {
		return unavailable(len(renewals), fmt.Errorf("%w: too many renewals wait for the store", lease.ErrUnavailable))
	}
	select {
	case <-c.done:
		return c.answers
	case <-ctx.Done():
		return unavailable(len(renewals), fmt.Errorf("%w: %w", lease.ErrUnavailable, ctx.Err()))
	}
}

func unavailable(n int, err error) []lease.Answer {
	answers := make([]lease.Answer, n)
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}

// Ping is the store's, where it has one.
func (j *Joiner) Ping(ctx context.Context) error {
	if p, ok := j.store.(interface{ Ping(context.Context) error }); ok {
		return p.Ping(ctx)
	}
	return nil
}

// Run is the store's, where it has one.
func (j *Joiner) Run(ctx context.Context, tell func(lease.Loss)) error {
	if w, ok := j.store.(watchedLeases); ok {
		return w.Run(ctx, tell)
	}
	return nil
}

// Close waits for what is under way; no call may come afterwards. The store stays open.
func (j *Joiner) Close() error {
	j.running.Wait()
	return nil
}

func (j *Joiner) enqueue(c *joined) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.queued+len(c.renewals) > joinWaiting {
		return false
	}
	j.waiting = append(j.waiting, c)
	j.queued += len(c.renewals)
	if j.free > 0 {
		j.free--
		j.running.Go(j.drain)
	}
	return true
}

// drain sends batches until nothing waits.
func (j *Joiner) drain() {
	for {
		calls := j.take()
		if calls == nil {
			return
		}
		j.send(calls)
	}
}

// take removes the calls of the next batch, or gives the turn back.
func (j *Joiner) take() []*joined {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, renewals := 0, 0
	for _, c := range j.waiting {
		if n > 0 && renewals+len(c.renewals) > joinBatch {
			break
		}
		n++
		renewals += len(c.renewals)
	}
	if n == 0 {
		j.free++
		return nil
	}
	calls := append([]*joined(nil), j.waiting[:n]...)
	rest := copy(j.waiting, j.waiting[n:])
	clear(j.waiting[rest:])
	j.waiting = j.waiting[:rest]
	j.queued -= renewals
	return calls
}

// send is not bound to any caller's context: one that gives up must not undo its
// neighbours.
func (j *Joiner) send(calls []*joined) {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	if len(calls) == 1 {
		calls[0].answers = j.store.Renew(ctx, calls[0].renewals)
		close(calls[0].done)
		return
	}
	var all []lease.Renewal
	for _, c := range calls {
		all = append(all, c.renewals...)
	}
	answers := j.store.Renew(ctx, all)
	for _, c := range calls {
		n := len(c.renewals)
		c.answers, answers = answers[:n:n], answers[n:]
		close(c.done)
	}
}
