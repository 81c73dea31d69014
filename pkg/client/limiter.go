package client

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Limiter is a handle for one set of attributes. It is safe for concurrent use, and
// needs no closing: what it holds goes when it is collected as garbage.
type Limiter struct {
	// only is the bucket that decides alone; nil where several do, or none. The loop takes it away when anything
	// changes, so that a decision need not look whether something did.
	only  atomic.Pointer[agent.Entry]
	c     *Client
	attrs []Attribute
	pins  *pins
}

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
// on without: the handle decides as Client.AllowN would. It fails with ErrClosed.
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
	l.resolve()
	return l, nil
}

// Allow takes one unit; see Client.AllowN. Where one limit holds the attributes, that is one atomic subtraction.
func (l *Limiter) Allow(ctx context.Context) Decision { return l.AllowN(ctx, 1) }

// AllowN takes n units; see Client.AllowN.
func (l *Limiter) AllowN(ctx context.Context, n int64) Decision {
	if e := l.only.Load(); e != nil && n >= 1 && n <= limit.MaxUnits && e.Take(n) {
		return Decision{Allowed: true, by: e}
	}
	d := l.c.AllowN(ctx, n, l.attrs...)
	if l.only.Load() == nil && !l.c.special.Load() {
		l.resolve()
	}
	return d
}

// resolve sets the bucket where exactly one limit decides, and pins its bucket.
func (l *Limiter) resolve() {
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
	l.goBy(e)
	// What changed before this point is seen here; what changes after it finds the
	// handle in the list.
	if set.Gone() || l.c.special.Load() || e.Dead() {
		l.release()
	}
}

// goBy has the handle go by a bucket, which it pins as long: one that releases it comes before all of this, or after.
func (l *Limiter) goBy(e *agent.Entry) {
	l.pins.mu.Lock()
	defer l.pins.mu.Unlock()
	l.pins.swapLocked([]*agent.Entry{e})
	l.only.Store(e)
}

// release takes the bucket away.
func (l *Limiter) release() {
	l.pins.mu.Lock()
	defer l.pins.mu.Unlock()
	l.only.Store(nil)
	l.pins.swapLocked(nil)
}

// releaseAll makes every handle resolve again, and forgets those that are no more.
func (c *Client) releaseAll() {
	c.sweepHandles(func(l *Limiter) { l.release() })
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
