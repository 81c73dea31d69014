package client

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Limiter is a handle for one set of attributes. It is safe for concurrent use, and
// needs no closing: what it holds goes when it is collected as garbage.
type Limiter struct {
	// fast is the stock of the bucket, where it is one and decides alone, and otherwise nil. The loop
	// takes it away when anything changes, so that a decision need not look whether
	// something did. It is nil as well while the bucket denies for certain: those who are denied write
	// nothing that they share, and so do not hold up each other (denied from 2 threads, loadtest/bench/decision).
	// It is an *atomic.Int64, read and written atomically, untyped for then Allow is inlined where it is called.
	fast  unsafe.Pointer
	entry atomic.Pointer[settled] // the bucket that decides alone; nil for none
	c     *Client
	attrs []Attribute
	pins  *pins
}

// settled is the one bucket that decides, and which limit's it is.
type settled struct {
	*agent.Entry
	set *agent.Set
	at  int // of set.Items
}

func (s *settled) item() *agent.Item { return &s.set.Items[s.at] }

// pins are the buckets that a handle keeps from being dropped.
type pins struct {
	mu      sync.Mutex // of what the handle goes by as well
	entries []*agent.Entry
}

func (p *pins) swap(entries []*agent.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swapLocked(entries)
}

func (p *pins) swapLocked(entries []*agent.Entry) {
	for _, e := range entries {
		e.Pin()
	}
	for _, e := range p.entries {
		e.Unpin()
	}
	p.entries = entries
}

// handle is what the client keeps of a Limiter.
type handle struct {
	limiter weak.Pointer[Limiter]
	pins    *pins
}

// clone copies what the caller may use again.
func clone(a []limit.Attribute) []limit.Attribute {
	b := slices.Clone(a)
	for i := range b {
		b[i] = limit.Attribute{Name: strings.Clone(b[i].Name), Value: strings.Clone(b[i].Value)}
	}
	return b
}

// Limiter resolves the attributes once and returns a handle for them, for the
// hottest paths. It follows changes of the policy and of the tenant. It waits
// for the tenant to be known, no longer than ctx and WithMaxWait, and then goes
// on without: the handle decides as AllowN would. It fails with ErrClosed.
func (c *Client) Limiter(ctx context.Context, attributes ...Attribute) (*Limiter, error) {
	if c.closed.Load() {
		return nil, ErrClosed
	}
	l := &Limiter{c: c, pins: new(pins)}
	for _, a := range clone(attributesOf(attributes)) {
		l.attrs = append(l.attrs, Attribute(a))
	}
	r := c.request(1, attributesOf(l.attrs))
	c.resolve(ctx, r)
	r.end()
	c.mu.Lock()
	c.handles = append(c.handles, handle{weak.Make(l), l.pins})
	c.mu.Unlock()
	l.settle()
	return l, nil
}

// Allow takes one unit and reports whether it may be spent. Where one limit holds
// the attributes, that is one atomic subtraction. It waits as AllowN does. It cannot tell
// when the request ends, and leaves concurrency limits out: use Decide for those.
func (l *Limiter) Allow() bool {
	f := (*int64)(atomic.LoadPointer(&l.fast))
	return f != nil && atomic.AddInt64(f, -agent.Unit) >= 0 || l.slowly()
}

// slowly is Allow where the stock had nothing left. It is apart, and without an
// argument, so that Allow is inlined where it is called. Where the bucket changed in between,
// one unit more or less counts as denied.
func (l *Limiter) slowly() bool {
	if e := l.entry.Load(); e != nil {
		stock := e.Stock()
		if stock.Load() >= 0 && l.reopen(e, stock) && stock.Add(-agent.Unit) >= 0 {
			return true
		}
		if !e.item().Soft && !e.set.Gone() {
			if _, _, shut := l.c.shut(e.Entry, 1); shut {
				if atomic.LoadPointer(&l.fast) != nil {
					atomic.CompareAndSwapPointer(&l.fast, unsafe.Pointer(stock), nil)
				}
				return false
			}
		}
		return l.refill(context.Background(), e, 1).Allowed
	}
	return l.endless(1)
}

// reopen gives the fast path back that was taken away while the bucket denied, and reports whether the bucket still
// decides alone: whoever unsettles the handle takes the bucket away before the fast path, so that one of the two sees
// the other.
func (l *Limiter) reopen(e *settled, stock *atomic.Int64) bool {
	f := unsafe.Pointer(stock)
	if !atomic.CompareAndSwapPointer(&l.fast, nil, f) {
		return atomic.LoadPointer(&l.fast) == f
	}
	if l.entry.Load() != e {
		atomic.CompareAndSwapPointer(&l.fast, f, nil)
		return false
	}
	return true
}

// AllowN takes n units; see Client.AllowN. It leaves concurrency limits out, as Allow does.
func (l *Limiter) AllowN(n int64) bool {
	if l.entry.Load() == nil {
		return l.endless(n)
	}
	d := l.Decide(context.Background(), n)
	d.Done() // for limits that changed just now
	return d.Allowed
}

// endless is decide without limits of slots.
func (l *Limiter) endless(n int64) bool {
	a := attributesOf(l.attrs)
	if set := l.c.reg.Find(agent.Lookup(a, AttrTenant)); set != nil && set.Slots {
		r := l.c.request(n, a)
		r.endless = true
		d := l.c.begun(context.Background(), r)
		l.resettle()
		return d.Allowed
	}
	d := l.decide(context.Background(), n)
	d.Done() // for limits that changed just now
	return d.Allowed
}

// Decide takes n units and returns the whole decision; see Client.AllowN.
func (l *Limiter) Decide(ctx context.Context, n int64) Decision {
	if e := l.entry.Load(); e != nil && n >= 1 && n <= limit.MaxUnits {
		if e.Take(n) {
			return Decision{Allowed: true, by: e.Entry}
		}
		return l.refill(ctx, e, n)
	}
	return l.decide(ctx, n)
}

// refill goes on where the fast path's Take failed.
func (l *Limiter) refill(ctx context.Context, e *settled, n int64) Decision {
	c, a := l.c, attributesOf(l.attrs)
	if set, i := e.set, e.at; !set.Gone() && !c.special.Load() {
		it, e := e.item(), e.Entry
		v, lost := c.refill(e, n, false)
		switch v.Outcome {
		case agent.Admitted:
			return Decision{Allowed: true, by: hold{it, e}.speaks()}
		case agent.Denied:
			if it.Soft && !(lost && c.closes(it, e)) {
				announce(it, e, n)
				return c.continueSlow(ctx, n, a, set, []hold{{it, e}}, i, wasDenied)
			}
			return c.denial(hold{it, e}, v, lost)
		case agent.Wait:
			announce(it, e, n)
			return c.continueSlow(ctx, n, a, set, []hold{{it, e}}, i, toldToWait)
		}
	}
	// Something changed meanwhile. The refusal that a failed Take of one unit leaves
	// behind stays on a bucket whose limit is being given up, or whose tenant was switched off.
	return l.decide(ctx, n)
}

// decide goes the common way, and then tries to resolve the handle again.
func (l *Limiter) decide(ctx context.Context, n int64) Decision {
	a := attributesOf(l.attrs)
	d := l.c.allow(ctx, n, a, agent.KeyOf(a))
	l.resettle()
	return d
}

// resettle settles a handle that something has unsettled.
func (l *Limiter) resettle() {
	if l.entry.Load() == nil && !l.c.special.Load() {
		l.settle()
	}
}

// settle sets the fast path where exactly one limit decides, and pins its bucket.
func (l *Limiter) settle() {
	a := attributesOf(l.attrs)
	set := l.c.reg.Find(agent.Lookup(a, AttrTenant))
	if set == nil || set.Refusal != agent.NotRefused {
		return
	}
	if set.Trial.Concerns(a) {
		return
	}
	only := -1
	for i := range set.Items {
		it := &set.Items[i]
		if !it.Rule.Applies(a) {
			continue
		}
		if only >= 0 || it.Inherited || it.Slots || it.Vet {
			return
		}
		only = i
	}
	if only < 0 {
		return
	}
	e, err := l.c.reg.Touch(set, &set.List, only, a, l.c.now())
	if err != nil {
		return
	}
	l.goBy(&settled{e, set, only})
	// What changed before this point is seen here; what changes after it finds the
	// handle in the list.
	if set.Gone() || l.c.special.Load() || e.Dead() {
		l.unsettle()
	}
}

// goBy has the handle go by a bucket, which it pins as long: one that unsettles it comes before all of this, or after.
func (l *Limiter) goBy(s *settled) {
	l.pins.mu.Lock()
	defer l.pins.mu.Unlock()
	l.pins.swapLocked([]*agent.Entry{s.Entry})
	l.entry.Store(s)
	atomic.StorePointer(&l.fast, unsafe.Pointer(s.Stock()))
}

// unsettle takes the fast path away.
func (l *Limiter) unsettle() {
	l.pins.mu.Lock()
	defer l.pins.mu.Unlock()
	l.entry.Store(nil)
	atomic.StorePointer(&l.fast, nil)
	l.pins.swapLocked(nil)
}

// unsettleAll makes every handle resolve again, and forgets those that are no more.
func (c *Client) unsettleAll() {
	c.sweepHandles(func(l *Limiter) { l.unsettle() })
}

// sweepHandles calls f for every handle and forgets those that are no more.
func (c *Client) sweepHandles(f func(*Limiter)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.handles[:0]
	for _, h := range c.handles {
		if l := h.limiter.Value(); l != nil {
			f(l)
			kept = append(kept, h)
		} else {
			h.pins.swap(nil)
		}
	}
	clear(c.handles[len(kept):])
	c.handles = kept
}
