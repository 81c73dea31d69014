package client

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// Limiter is a handle for one set of attributes. It is safe for concurrent use, and needs no closing.
type Limiter struct {
	// only is the bucket that decides alone; nil where several do, or none. The client takes it away when anything
	// changes, so that a decision need not look whether something did.
	only  atomic.Pointer[agent.Entry]
	c     *Client
	attrs []Attribute
	pin   *pin
	timed atomic.Bool // the limit is limit.Limit.Timed, or was: then units are held against the clock
}

// pin keeps a handle's bucket from being dropped. The client has it, and finds by it that the handle is gone.
type pin struct {
	limiter weak.Pointer[Limiter]
	mu      sync.Mutex // guards Limiter.only as well
	entry   *agent.Entry
}

// Limiter resolves attributes once and returns a handle for them, for the hottest paths. It follows changes of the
// policy and of the tenant. It waits for the tenant to be known, no longer than ctx and WithMaxWait; if it is not, the
// handle decides as Client.AllowN would. The attributes are copied. It fails with ErrClosed.
func (c *Client) Limiter(ctx context.Context, attributes ...Attribute) (*Limiter, error) {
	if c.closed.Load() {
		return nil, ErrClosed
	}
	l := &Limiter{c: c, attrs: slices.Clone(attributes), pin: new(pin)}
	own(attributesOf(l.attrs))
	r := c.request(1, nil, attributesOf(l.attrs))
	r.limits(ctx)
	r.end()
	c.mu.Lock()
	l.pin.limiter = weak.Make(l)
	c.handles = append(c.handles, l.pin)
	c.mu.Unlock()
	l.resolve()
	return l, nil
}

// Allow takes one unit; see Client.AllowN. Where one limit applies to the attributes, that is one atomic subtraction.
func (l *Limiter) Allow(ctx context.Context) Decision { return l.AllowN(ctx, 1) }

// AllowN takes n units; see Client.AllowN.
func (l *Limiter) AllowN(ctx context.Context, n int64) Decision {
	if e := l.only.Load(); e != nil && n >= 1 && n <= limit.MaxUnits {
		if until := l.until(e); e.Take(n) && e.InTime(n, until, l.c.clock) {
			return Decision{Allowed: true, by: e}
		}
	}
	d := l.c.AllowN(ctx, n, l.attrs...)
	if l.only.Load() == nil && !l.c.special.Load() {
		l.resolve()
	}
	return d
}

// Wait takes one unit, and waits for it; see Client.WaitN.
func (l *Limiter) Wait(ctx context.Context) Decision { return l.WaitN(ctx, 1) }

// WaitN takes n units, and waits for them; see Client.WaitN.
func (l *Limiter) WaitN(ctx context.Context, n int64) Decision {
	if e := l.only.Load(); e != nil && n >= 1 && n <= limit.MaxUnits {
		if until := l.until(e); e.Try(n) && e.InTime(n, until, l.c.clock) {
			return Decision{Allowed: true, by: e}
		}
	}
	return l.c.WaitN(ctx, n, l.attrs...)
}

// until is the bucket's Until. A handle of other limits does not touch the bucket's state for that.
func (l *Limiter) until(e *agent.Entry) int64 {
	if !l.timed.Load() {
		return 0
	}
	return e.Until()
}

// resolve has the handle go by a bucket, where exactly one limit decides.
func (l *Limiter) resolve() {
	a := attributesOf(l.attrs)
	set := l.c.reg.Find(match.Lookup(a, limit.AttrTenant))
	if set == nil || set.Refusal != agent.NotRefused || set.Trial.Concerns(a) {
		return
	}
	only := -1
	for i, it := range (applicable{list: &set.List, attrs: a}).each {
		if only >= 0 || it.Inherited || it.Slots || it.Vet || it.Weighs {
			return
		}
		only = i
	}
	if only < 0 {
		return
	}
	e, err := l.c.reg.Touch(set, &set.List, only, a, l.c.reg.Now())
	if err != nil {
		return
	}
	if set.Items[only].Rule.Limit.Timed() {
		l.timed.Store(true)
	}
	l.goBy(e)
	// A change before this point is seen here; a later one finds the handle in the list.
	if set.Gone() || l.c.special.Load() || e.Dead() {
		l.goBy(nil)
	}
}

// goBy has the handle go by a bucket and pins it; nil for none.
func (l *Limiter) goBy(e *agent.Entry) {
	l.pin.mu.Lock()
	defer l.pin.mu.Unlock()
	l.only.Store(nil) // before its bucket is unpinned
	l.pin.setLocked(e)
	l.only.Store(e)
}

func (p *pin) setLocked(e *agent.Entry) {
	if e != nil {
		e.Pin()
	}
	if p.entry != nil {
		p.entry.Unpin()
	}
	p.entry = e
}

// sweepHandles forgets handles that were collected as garbage, and unpins their buckets. With release every other handle
// resolves its attributes again.
func (c *Client) sweepHandles(release bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handles = slices.DeleteFunc(c.handles, func(p *pin) bool {
		l := p.limiter.Value()
		switch {
		case l == nil:
			p.mu.Lock()
			defer p.mu.Unlock()
			p.setLocked(nil)
		case release:
			l.goBy(nil)
		}
		return l == nil
	})
}
