package agent

import (
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
	"github.com/f4ee788f/quota/internal/core/reqcache"
	"github.com/f4ee788f/quota/internal/core/table"
	"github.com/f4ee788f/quota/internal/core/usage"
)

var (
	// ErrCrowded means that the registry, or who would hold the bucket, holds as many buckets or tenants as it may.
	ErrCrowded = errors.New("agent: too many buckets")
	// ErrGone means that the set is no longer in force, or the registry closed: match again.
	ErrGone = errors.New("agent: policy changed")
)

// Refusal is why a tenant's requests are denied without asking any limit.
type Refusal uint8

const (
	NotRefused Refusal = iota
	NoPlan
	Suspended
	Switched // by an operator
	Capped   // the tenant, or an ancestor, has spent what it may
)

// Registry holds an agent's buckets and the tenants in use, and matches requests
// to them. Find and Entry take no lock; what changes something takes the
// mutex for a moment. Its owner alone calls what says so.
type Registry struct {
	seed    maphash.Seed
	max     int
	share   int  // see Share
	endless bool // limits of slots are left out
	tenants *table.Table[Tenant]
	entries *table.Table[Entry]

	known     *reqcache.Cache[Resolution]
	sweeping  atomic.Bool
	anonymous atomic.Pointer[Set] // for requests without a tenant
	mode      atomic.Uint32
	version   atomic.Int64
	buckets   atomic.Int64
	fleet     atomic.Int64 // see Fleet

	mu      sync.Mutex
	rules   *limit.Rules
	trial   *limit.Rules // the shadow version; nil for none
	scopes  *table.Table[Scope]
	kinds   map[kindKey]*kind             // of scopes that there are
	usual   map[*limit.Rule]*bucket.Terms // of rules as they are
	round   int32                         // of rebuilding
	denied  map[string]bool               // tenants switched off
	unasked []*Tenant                     // to be asked for; at most max
	pending map[*Tenant]chan struct{}     // tenants whose set waits for an answer; closed when it is there; nil where nobody waits
	lists   match.Lists
	rooted  map[*Tenant]int32 // buckets of the top level's limits whose usage is a tenant's, by tenant
	nested  bool              // some tenant has, or had, a parent: which tenants are below one takes a look at all
	closed  bool
	journal *usage.Journal // nil without
	began   time.Time
}

// NewRegistry returns a registry that knows no policy yet and holds at most max
// buckets and as many tenants.
func NewRegistry(max int) *Registry {
	r := &Registry{
		seed: maphash.MakeSeed(), max: max, share: 100,
		scopes: table.New(func(s *Scope) uint64 { return s.hash }), kinds: make(map[kindKey]*kind),
		usual: make(map[*limit.Rule]*bucket.Terms), pending: make(map[*Tenant]chan struct{}), rooted: make(map[*Tenant]int32),
	}
	r.tenants = table.New(func(t *Tenant) uint64 { return maphash.String(r.seed, t.id) })
	r.entries = table.New(func(e *Entry) uint64 { return r.hash(e.scope, e.values()) })
	r.known = reqcache.New[Resolution]()
	return r
}

// Fleet says among how many agents the credit of new buckets is shared; 0 for not known.
func (r *Registry) Fleet(agents int64) { r.fleet.Store(agents) }

// Keep has the buckets that feed the ledger count where a crash takes nothing. It is called before the first policy.
func (r *Registry) Keep(j *usage.Journal) { r.journal = j }

// CountFrom sets the zero of the clock that buckets are told. It is called before the first policy.
func (r *Registry) CountFrom(began time.Time) { r.began = began }

// Now is that clock: microseconds, never stepped.
func (r *Registry) Now() int64 { return time.Since(r.began).Microseconds() }

// LeaveOutSlots has the registry leave limits of slots out, for a program that cannot
// tell when a request ends. It is called before the first policy.
func (r *Registry) LeaveOutSlots() { r.endless = true }

// find returns the tenant of that id, or nil.
func (r *Registry) find(id string) *Tenant {
	return r.tenants.Find(maphash.String(r.seed, id), func(t *Tenant) bool { return t.id == id })
}

// Find returns the set of limits that holds the tenant's requests, or nil while that is not known here. For an empty id
// it is the set for requests without a tenant.
func (r *Registry) Find(id string) *Set {
	if id == "" {
		return r.anonymous.Load()
	}
	t := r.find(id)
	if t == nil {
		return nil
	}
	if !t.touched.Load() {
		t.touched.Store(true)
	}
	return t.set.Load()
}

// Entry returns the request's bucket of item i, or nil when it is not held yet.
func (r *Registry) Entry(l *List, i int, attributes []limit.Attribute) *Entry {
	it := &l.Items[i]
	if it.Only != "" { // keys have clean values only, so a value that is found as it came is right
		if e := r.entry(l.scopes[i], match.Lookup(attributes, it.Only)); e != nil {
			return e
		}
	}
	var buf [256]byte
	key := it.AppendKey(buf[:0], attributes)
	return r.entry(l.scopes[i], unsafe.String(unsafe.SliceData(key), len(key)))
}

// entry returns the scope's bucket of a key; nil for none.
func (r *Registry) entry(s *Scope, key string) *Entry {
	if len(s.names) == 0 {
		return s.direct.Load()
	}
	return r.entries.Find(r.hash(s, key), func(e *Entry) bool { return e.scope == s && e.values() == key })
}

// hash is where a bucket of the scope is in the table.
func (r *Registry) hash(s *Scope, key string) uint64 { return maphash.String(r.seed, key) ^ s.hash }

// Close makes Touch fail, so that there are no other buckets than those there now.
func (r *Registry) Close() {
	r.known.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// Learn returns the tenant of that id, known or not; fresh says that the owner
// has to be woken to ask for it. It fails with ErrCrowded.
func (r *Registry) Learn(id string) (t *Tenant, fresh bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, fresh = r.learnLocked(id)
	if t == nil {
		return nil, false, ErrCrowded
	}
	return t, fresh, nil
}

func (r *Registry) learnLocked(id string) (t *Tenant, fresh bool) {
	if t := r.find(id); t != nil {
		t.touched.Store(true)
		if t.set.Load() == nil && !t.asking && !t.known {
			r.askLocked(t)
			return t, true
		}
		return t, false
	}
	if r.tenants.Len() >= r.max {
		return nil, false
	}
	t = newTenant(id)
	t.touched.Store(true)
	r.pending[t] = nil
	r.tenants.Insert(maphash.String(r.seed, id), t)
	r.askLocked(t)
	return t, true
}

func (r *Registry) askLocked(t *Tenant) {
	if !t.asking {
		t.asking = true
		r.unasked = append(r.unasked, t)
	}
}

// Learning returns how many tenants are not known yet.
func (r *Registry) Learning() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending)
}

// Unasked takes up to n tenants that the server is to be asked for. The owner's.
func (r *Registry) Unasked(n int) []*Tenant {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := slices.Clone(r.unasked[:min(n, len(r.unasked))])
	r.unasked = slices.Delete(r.unasked, 0, len(taken))
	return taken
}

// AskAgain puts tenants back whose question was not answered. The owner's.
func (r *Registry) AskAgain(tenants []*Tenant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range tenants {
		t.asking = false
		r.askLocked(t)
	}
}

// Ask asks again for a tenant in use. The owner's.
func (r *Registry) Ask(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.find(id); t != nil {
		r.askLocked(t)
	}
}

// Refresh asks again for every tenant in use. The owner's.
func (r *Registry) Refresh() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t := range r.tenants.All() {
		r.askLocked(t)
	}
}

// Gateways returns the gateways of the policy in force; nil while none is known.
// They must not be changed.
func (r *Registry) Gateways() []limit.Gateway {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rules == nil {
		return nil
	}
	return r.rules.Policy.Gateways
}

// Mode returns the switch over all decisions.
func (r *Registry) Mode() limit.Mode { return limit.Mode(r.mode.Load()) }

// Version returns the version of the policy in force, 0 before the first.
func (r *Registry) Version() int64 { return r.version.Load() }

// Buckets returns how many buckets are held.
func (r *Registry) Buckets() int64 { return r.buckets.Load() }

// Tenants returns how many tenants are known.
func (r *Registry) Tenants() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tenants.Len()
}

// Each calls f for every bucket that there was when it began, but, where it is not the owner that calls, for those dropped
// meanwhile. Nobody waits for it.
func (r *Registry) Each(f func(*Entry)) { r.entries.All()(func(e *Entry) bool { f(e); return true }) }
