package agent

import (
	"slices"
	"strings"
	"sync/atomic"
	"unique"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Tenant is a tenant in use.
type Tenant struct {
	set     atomic.Pointer[Set] // nil until it and its ancestors are known
	id      string
	touched atomic.Bool // used since the owner last looked

	// Under the registry's mutex.
	known  bool
	asking bool  // queued or under way
	below  int32 // sets whose ancestor it is
	idle   uint8 // sweeps since it was used, at most forgotten
	info
}

// forgotten is how many sweeps a tenant stays without use.
const forgotten = 2

func newTenant(id string) *Tenant { return &Tenant{id: strings.Clone(id)} }

// ID returns the tenant's id.
func (t *Tenant) ID() string { return t.id }

// Set returns what holds the tenant's requests, or nil while that is not known.
func (t *Tenant) Set() *Set { return t.set.Load() }

// closed is the channel of a tenant that is ready.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Ready returns a channel that is closed once the tenant's Set is there.
func (r *Registry) Ready(t *Tenant) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready, pending := r.pending[t]
	switch {
	case t.set.Load() != nil:
		return closed
	case pending && ready == nil:
		ready = make(chan struct{})
		r.pending[t] = ready
	}
	return ready
}

// info is the server's word on a tenant, in few bytes: parts that many tenants have are stored once.
type info struct {
	said
	overrides []override
}

// said is all but the overrides.
type said struct {
	plan, parent unique.Handle[string]
	revision     int64
	exists       bool
	suspended    bool
	closed       bool
	capped       bool
}

// override is a limit of the tenant's own.
type override struct {
	like  *limit.Limit // says the same but for rate and burst: the plan's, where that does. It is never written
	rate  limit.Rate
	burst int64
}

func saidOf(t *limit.Tenant) said {
	return said{
		plan: unique.Make(t.Plan), parent: unique.Make(t.Parent), revision: t.Revision,
		exists: t.Exists, suspended: t.Suspended, closed: t.Closed, capped: t.Capped,
	}
}

func infoOf(t *limit.Tenant) info {
	i := info{said: saidOf(t)}
	if len(t.Overrides) > 0 {
		i.overrides = make([]override, len(t.Overrides))
	}
	for k := range t.Overrides {
		o := &t.Overrides[k]
		i.overrides[k] = override{o, o.Rate, o.Burst}
	}
	return i
}

// news reports whether the server says something else of a known tenant, and nothing older than is known.
func (i *info) news(t *limit.Tenant) bool {
	if t.Exists && i.exists && i.revision > t.Revision {
		return false
	}
	return i.said != saidOf(t) || !slices.EqualFunc(i.overrides, t.Overrides, func(o override, l limit.Limit) bool {
		return o.rate == l.Rate && o.burst == l.Burst && o.like.Like(&l)
	})
}

// tenant returns the tenant as the server told it. The overrides are appended to limits, which it also returns.
func (t *Tenant) tenant(limits []limit.Limit) (limit.Tenant, []limit.Limit) {
	from := len(limits)
	for _, o := range t.overrides {
		l := *o.like
		l.Rate, l.Burst = o.rate, o.burst
		limits = append(limits, l)
	}
	return limit.Tenant{
		ID: t.id, Exists: t.exists, Plan: t.plan.Value(), Parent: t.parent.Value(),
		Revision: t.revision, Suspended: t.suspended, Closed: t.closed, Capped: t.capped, Overrides: limits[from:],
	}, limits
}

// lean replaces limits that the tenant's plan has, too, by the plan's.
func (t *Tenant) lean(rules *limit.Rules) {
	if rules == nil || len(t.overrides) == 0 {
		return
	}
	said := limit.Tenant{ID: t.id, Exists: t.exists, Plan: t.plan.Value()}
	for k := range t.overrides {
		if like := rules.Like(&said, t.overrides[k].like); like != nil {
			t.overrides[k].like = like
		}
	}
}
