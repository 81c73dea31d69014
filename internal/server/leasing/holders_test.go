package leasing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/servertest"
)

// holdLedger notes holders after a while, or fails to.
type holdLedger struct {
	ledger.Store
	mu    sync.Mutex // of what follows
	after time.Duration
	err   error
	noted []string
	calls int
	most  int // tenants of one call
}

func (l *holdLedger) Hold(_ context.Context, holds ...ledger.Hold) error {
	l.mu.Lock()
	l.calls++
	after := l.after
	l.mu.Unlock()
	time.Sleep(after)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		before := len(l.noted)
		for _, h := range holds {
			l.noted = append(l.noted, h.Sorted()...)
		}
		l.most = max(l.most, len(l.noted)-before)
	}
	return l.err
}

// set changes the ledger.
func (l *holdLedger) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// was returns whom it has noted.
func (l *holdLedger) was() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.noted)
}

// An agent is noted once for each tenant, soon after it asked. While the ledger is away, notes are kept. Those that come
// later than ledger.NotedWithin are counted.
func TestHoldersAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		m, err := NewMetrics(r)
		if err != nil {
			t.Fatal(err)
		}
		l := &holdLedger{after: 5 * time.Millisecond}
		h := newHolders(l, m)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.run(ctx) })
		note := func(tenants ...string) {
			began := time.Now()
			h.note(ledger.Hold{Epoch: ledger.Epoch{Agent: "a", Epoch: 1}, Tenants: tenants})
			if waited := time.Since(began); waited > 0 {
				t.Errorf("the call waited %v", waited)
			}
		}
		noted := func(when string, after time.Duration, unnoted float64, want ...string) {
			t.Helper()
			time.Sleep(after + 1)
			synctest.Wait()
			if got := l.was(); !slices.Equal(got, want) {
				t.Errorf("%s: noted %v, want %v", when, got, want)
			}
			if got := servertest.Counter(t, r, "quota_server_unnoted_holders_total"); got != unnoted {
				t.Errorf("%s: %v were noted late, want %v", when, got, unnoted)
			}
			l.set(func() { l.noted = nil })
		}
		note("acme")
		noted("the first lease", l.after, 0, "acme")
		note("acme")
		noted("the next", l.after, 0)
		note("acme", "umbrella")
		noted("another tenant", l.after, 0, "umbrella")
		l.set(func() { l.after = time.Second })
		note("initech")
		note("initech")
		noted("the ledger is slow", l.after, 0, "initech")
		l.set(func() { l.after, l.err = 0, errors.New("away") })
		note("hooli")
		noted("the ledger is away", ledger.NotedWithin/2, 0)
		l.set(func() { l.err = nil })
		noted("it is back in time, and nobody asks", holdPause, 0, "hooli")
		l.set(func() { l.err = errors.New("away") })
		note("stark")
		noted("the ledger is away for long", ledger.NotedWithin, 0)
		l.set(func() { l.err = nil })
		noted("it is back", holdPause, 1, "stark")
		h.forget()
		note("hooli")
		noted("it is another", l.after, 1, "hooli")
		l.set(func() { l.after = 50 * time.Millisecond })
		note("globex")
		time.Sleep(l.after / 2)
		h.forget()
		note("globex")
		noted("it was noted in the one before", l.after, 1, "globex", "globex")
		l.set(func() { l.after = 0 })
		many := make([]string, mostLate+1)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		note(many...)
		noted("too many", 0, 2)
		l.set(func() { l.after = 50 * time.Millisecond })
		note("wonka")
		cancel()
		running.Wait()
		noted("the server stopped", 0, 2, "wonka")
	})
}

// Of a fleet that starts the calls that come while the ledger writes are noted together, but never so many that a
// batch runs out of time.
func TestHoldersOfAFleetAreNotedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := NewMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		l := &holdLedger{after: 5 * time.Millisecond}
		h := newHolders(l, m)
		const agents, calls, each = 100, 300, 100
		for i := range calls {
			hold := ledger.Hold{Epoch: ledger.Epoch{Agent: fmt.Sprint(i % agents), Epoch: 1}}
			for j := range each {
				hold.Tenants = append(hold.Tenants, fmt.Sprint(i*each+j))
			}
			h.note(hold)
		}
		began := time.Now()
		h.writers.Wait()
		const batches = calls*each/holdBatch + holdWidth + 1
		if took := time.Since(began); l.calls > batches || l.most > holdBatch || len(l.was()) != calls*each {
			t.Errorf("%d are noted after %v by %d transactions of at most %d, want %d by %d of %d", len(l.was()), took, l.calls, l.most, calls*each, batches, holdBatch)
		}
	})
}
