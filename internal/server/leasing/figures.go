package leasing

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/view"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	// ledgeredFrom is the shortest window that the ledger is asked for: in shorter ones its answer comes too late.
	ledgeredFrom = time.Hour
	// figureWait is how long a call waits for the ledger, where a window cannot begin without it. After that a later
	// renewal brings the figure.
	figureWait = 300 * time.Millisecond
	// figureAge is how long a figure is told to the lease store, and the least time between two questions to the
	// ledger.
	figureAge = 2 * time.Second
	// figureTimeout bounds one question.
	figureTimeout = 2 * time.Second
	// figureWorkers is how many questions are under way at once, and figureQueue how many wait. Beyond that, buckets go
	// on without an answer, and ask again.
	figureWorkers = 4
	figureQueue   = 1024
	// mostFigures bounds the buckets with a figure.
	mostFigures = 16_384
)

// counted is a bucket's window as the ledger counts it.
type counted struct {
	tenant   string
	names    ledger.Names
	overage  bool // the units above a soft limit
	soft     bool
	from, to time.Time
}

// ledgered reports whether the ledger knows the usage of each of the limit's buckets in the windows of spec.
func ledgered(now *view.InForce, rule *limit.Rule, r *quotav1.Renewal, s *lease.Spec) bool {
	slot := now.Rules.Policy.Slot.Microseconds()
	return s.Algorithm == limit.FixedWindow && rule.Limit.Meter != "" && !rule.Limit.Shadow && !r.Shadow &&
		s.WindowEnd-s.WindowStart >= ledgeredFrom.Microseconds() &&
		(slot == 0 || s.WindowStart%slot == 0 && s.WindowEnd%slot == 0)
}

// countedOf says which rows of the ledger belong to the bucket.
func countedOf(rule *limit.Rule, r *quotav1.Renewal, s *lease.Spec) counted {
	l := &rule.Limit
	c := counted{
		tenant: countedTenant(rule, r), names: ledger.Names{Limit: l.Name, Meter: l.Meter},
		overage: r.Kind == quotav1.Renewal_KIND_OVERAGE, soft: l.Enforcement == limit.Soft,
		from: time.UnixMicro(s.WindowStart), to: time.UnixMicro(s.WindowEnd),
	}
	own := tenantAt(rule, r)
	var pairs []string
	for i, v := range r.Values {
		if i != own && i < len(l.By) {
			pairs = append(pairs, l.By[i]+"="+v)
		}
	}
	c.names.Attributes = strings.Join(pairs, ledger.AttributeSep)
	return c
}

// countedTenant is the tenant whose usage a renewal's bucket holds; empty if it holds everybody's.
func countedTenant(rule *limit.Rule, r *quotav1.Renewal) string {
	if own := tenantAt(rule, r); own >= 0 && own < len(r.Values) {
		return r.Values[own]
	}
	return r.Tenant
}

// tenantAt returns the index of the tenant among a renewal's values, or -1. Only a top-level limit with a bucket for
// each tenant has one.
func tenantAt(rule *limit.Rule, r *quotav1.Renewal) int {
	if r.Tenant != "" {
		return -1
	}
	return slices.Index(rule.Limit.By, limit.AttrTenant)
}

// figures asks the ledger how much was used in windows that the lease store is not sure of. It keeps the answers for
// later renewals. Its size and its questions are bounded.
type figures struct {
	ledger  ledger.Store
	policy  policystore.Store
	metrics *Metrics
	queue   chan *figure
	there   Lasting

	mu    sync.Mutex
	known map[string]*figure // by bucket
}

// figure is what is known of one bucket.
type figure struct {
	of counted

	mu    sync.Mutex
	value lease.Figure
	at    time.Time // when the ledger was asked for value
	asked time.Time
	done  chan struct{} // closed when the question under way is answered; nil while there is none
}

// Lasting says how long the ledger has taken reports without a break; 0 if it does not now.
type Lasting interface{ Lasts() time.Duration }

func newFigures(l ledger.Store, p policystore.Store, there Lasting, m *Metrics) *figures {
	return &figures{ledger: l, policy: p, there: there, metrics: m, queue: make(chan *figure, figureQueue), known: make(map[string]*figure)}
}

// run answers questions until ctx ends.
func (f *figures) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range figureWorkers {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case q := <-f.queue:
					f.answer(ctx, q)
				}
			}
		})
	}
	workers.Wait()
}

// of returns the figure of a bucket; none if nobody doubts it.
func (f *figures) of(key string) lease.Figure {
	f.mu.Lock()
	q := f.known[key]
	f.mu.Unlock()
	if q == nil {
		return lease.Figure{}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.asked) > figureAge {
		f.askLocked(q)
	}
	return q.agedLocked()
}

// doubted notes whether the lease store is in doubt about a bucket.
func (f *figures) doubted(key string, of func() counted, doubted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.known[key]
	switch {
	case !doubted:
		delete(f.known, key)
	case q == nil:
		f.startLocked(key, of())
	default:
		if c := of(); c != q.of { // another window, or another limit
			f.startLocked(key, c)
		}
	}
}

// ask returns a bucket's figure, waiting for the ledger no longer than ctx. Its window is always set, because the
// ledger was asked.
func (f *figures) ask(ctx context.Context, key string, of counted) lease.Figure {
	f.mu.Lock()
	q := f.known[key]
	if q == nil || q.of != of {
		q = f.startLocked(key, of)
	}
	f.mu.Unlock()
	q.mu.Lock()
	done := q.done
	q.mu.Unlock()
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.value.Window == 0 {
		return lease.Figure{Window: of.from.UnixMicro()}
	}
	return q.agedLocked()
}

// agedLocked is the figure as it is told now.
func (q *figure) agedLocked() lease.Figure {
	v := q.value
	if v.Window != 0 {
		// The wall clock may be set back, and the monotonic one stands while a machine is suspended.
		now := time.Now()
		v.Age = max(now.Sub(q.at), now.Round(0).Sub(q.at.Round(0))).Microseconds()
	}
	return v
}

// startLocked asks for a bucket for the first time.
func (f *figures) startLocked(key string, of counted) *figure {
	for other := range f.known {
		if len(f.known) < mostFigures {
			break
		}
		delete(f.known, other) // it is asked for again if it is still in doubt
	}
	q := &figure{of: of}
	f.known[key] = q
	q.mu.Lock()
	defer q.mu.Unlock()
	f.askLocked(q)
	return q
}

// askLocked puts the question, unless it is under way or too many wait.
func (f *figures) askLocked(q *figure) {
	if q.done != nil {
		return
	}
	q.asked = time.Now()
	q.done = make(chan struct{})
	select {
	case f.queue <- q:
	default:
		close(q.done)
		q.done = nil
	}
}

// answer asks the ledger.
func (f *figures) answer(ctx context.Context, q *figure) {
	ctx, cancel := context.WithTimeout(ctx, figureTimeout)
	at, unbroken := time.Now(), f.there.Lasts()
	v, err := f.read(ctx, &q.of)
	cancel()
	v.Unbroken = unbroken.Microseconds()
	result := "known"
	if err != nil {
		result = "unknown"
	}
	f.metrics.figures.WithLabelValues(result).Inc()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		q.value, q.at = v, at
	}
	close(q.done)
	q.done = nil
}

func (f *figures) read(ctx context.Context, c *counted) (lease.Figure, error) {
	v := lease.Figure{Window: c.from.UnixMicro(), Whole: !c.overage && !c.soft}
	shadows, err := f.policy.Shadows(ctx)
	if err != nil {
		return v, err
	}
	if v.Whole {
		// A parent's bucket also holds its descendants' requests, but their usage is their own.
		parent, err := f.policy.Parent(ctx, c.tenant)
		if err != nil {
			return v, err
		}
		v.Whole = !parent
	}
	u, err := f.ledger.Usage(ctx, ledger.Query{Tenant: c.tenant, From: c.from, To: c.to, By: ledger.ByTotal, Of: &c.names, Except: shadows})
	if err != nil {
		return v, err
	}
	for _, r := range u.Rows {
		if c.overage {
			v.Used += r.Overage
		} else {
			v.Used += r.Admitted - r.Overage
		}
	}
	v.Used = max(v.Used, 0) // corrections may take more off than there was
	v.Through = 1           // nothing was settled ever
	if !u.Complete.IsZero() {
		v.Through = u.Complete.UnixMicro()
	}
	return v, nil
}
