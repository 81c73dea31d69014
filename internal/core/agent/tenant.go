package agent

import (
	"strings"
	"sync/atomic"
	"unique"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Tenant is a tenant in use. A decision reads its first cache line.
type Tenant struct {
	set     atomic.Pointer[Set] // nil until it and its ancestors are known
	id      string
	inline  [32]byte    // holds a short id
	touched atomic.Bool // used since the owner last looked

	// Under the registry's mutex.
	known  bool
	asking bool          // queued or under way
	below  int32         // sets whose ancestor it is
	idle   uint8         // sweeps since it was used, at most forgotten
	ready  chan struct{} // closed when set is first there; nil where nobody waits for it
	info
}

// forgotten is how many sweeps a tenant stays without use.
const forgotten = 2

func newTenant(id string) *Tenant {
	t := new(Tenant)
	if n := copy(t.inline[:], id); n == len(id) {
		t.id = unsafe.String(&t.inline[0], n)
	} else {
		t.id = strings.Clone(id)
	}
	return t
}

// ID returns the tenant's id.
func (t *Tenant) ID() string { return t.id }

// Set returns what holds the tenant's requests, or nil while that is not known.
func (t *Tenant) Set() *Set { return t.set.Load() }

// closed is what is ready already.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Ready returns what is closed once the tenant's Set is there.
func (r *Registry) Ready(t *Tenant) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.set.Load() != nil {
		return closed
	}
	if t.ready == nil {
		t.ready = make(chan struct{})
	}
	return t.ready
}

// info is what the server said of a tenant, in few bytes: what many are said to have is there once.
type info struct {
	plan, parent unique.Handle[string]
	overrides    []override
	revision     int64
	exists       bool
	suspended    bool
	closed       bool
	capped       bool
}

// override is a limit of the tenant's own.
type override struct {
	like  *limit.Limit // which says the same, but for what follows: the plan's where that does. It is never written
	rate  limit.Rate
	burst int64
}

func infoOf(t *limit.Tenant) info {
	i := info{
		plan: unique.Make(t.Plan), parent: unique.Make(t.Parent), revision: t.Revision,
		exists: t.Exists, suspended: t.Suspended, closed: t.Closed, capped: t.Capped,
	}
	if len(t.Overrides) > 0 {
		i.overrides = make([]override, len(t.Overrides))
	}
	for k := range t.Overrides {
		o := &t.Overrides[k]
		i.overrides[k] = override{o, o.Rate, o.Burst}
	}
	return i
}

// is reports whether the info says the same as t.
func (i *info) is(t *limit.Tenant) bool {
	if i.exists != t.Exists || i.suspended != t.Suspended || i.closed != t.Closed || i.capped != t.Capped || i.revision != t.Revision ||
		i.plan.Value() != t.Plan || i.parent.Value() != t.Parent || len(i.overrides) != len(t.Overrides) {
		return false
	}
	for k := range i.overrides {
		o, other := &i.overrides[k], &t.Overrides[k]
		if o.rate != other.Rate || o.burst != other.Burst || !o.like.Like(other) {
			return false
		}
	}
	return true
}

// overtook reports whether what is known is newer than what is said now.
func (i *info) overtook(t *limit.Tenant) bool { return t.Exists && i.exists && i.revision > t.Revision }

// tenant is what the server said. Its overrides are behind those in limits, which it returns with them.
func (t *Tenant) tenant(limits []limit.Limit) (limit.Tenant, []limit.Limit) {
	said := limit.Tenant{
		ID: t.id, Exists: t.exists, Plan: t.plan.Value(), Parent: t.parent.Value(),
		Revision: t.revision, Suspended: t.suspended, Closed: t.closed, Capped: t.capped,
	}
	from := len(limits)
	for k := range t.overrides {
		o := &t.overrides[k]
		limits = append(limits, *o.like)
		last := &limits[len(limits)-1]
		last.Rate, last.Burst = o.rate, o.burst
	}
	said.Overrides = limits[from:]
	return said, limits
}

// lean has what rules say as well not kept besides.
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
