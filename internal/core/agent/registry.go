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
	"github.com/f4ee788f/quota/internal/core/reqcache"
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
	tenants *table[Tenant]
	entries *table[Entry]

	known     *reqcache.Cache[Resolution]
	sweeping  atomic.Bool
	anonymous atomic.Pointer[Set] // for requests without a tenant
	mode      atomic.Uint32
	version   atomic.Int64
	buckets   atomic.Int64
	pins      pins

	mu      sync.Mutex
	rules   *limit.Rules
	trial   *limit.Rules // the shadow version; nil for none
	scopes  *table[Scope]
	kinds   map[kindKey]*kind             // of scopes that there are
	usual   map[*limit.Rule]*bucket.Terms // of rules as they are
	round   int64                         // of rebuilding
	denied  map[string]bool               // tenants switched off
	unasked []*Tenant                     // to be asked for; at most max
	pending map[*Tenant]struct{}          // tenants whose set waits for an answer
	shared  map[string]*shared            // by what makes the items
	rooted  map[*Tenant]int32             // buckets of the top level's limits whose usage is a tenant's, by tenant
	nested  bool                          // some tenant has, or had, a parent: which tenants are below one takes a look at all
	closed  bool
	journal *usage.Journal // nil without
	began   time.Time
}

// NewRegistry returns a registry that knows no policy yet and holds at most max
// buckets and as many tenants.
func NewRegistry(max int) *Registry {
	r := &Registry{
		seed: maphash.MakeSeed(), max: max, share: 100,
		scopes: newTable((*Scope).ownHash), kinds: make(map[kindKey]*kind), usual: make(map[*limit.Rule]*bucket.Terms), pending: make(map[*Tenant]struct{}), shared: make(map[string]*shared), rooted: make(map[*Tenant]int32),
	}
	r.tenants = newTable(func(t *Tenant) uint64 { return maphash.String(r.seed, t.id) })
	r.entries = newTable(func(e *Entry) uint64 { return r.hash(e.scope, e.values()) })
	r.known = reqcache.New[Resolution]()
	return r
}

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
	return r.tenants.find(maphash.String(r.seed, id), func(t *Tenant) bool { return t.id == id })
}

// Find returns what holds requests of the tenant, or nil while that is not known
// here; for an empty id, what holds requests without a tenant.
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

// Lookup returns the first value of that name, empty when there is none.
func Lookup(attributes []limit.Attribute, name string) string {
	for i := range attributes {
		if attributes[i].Name == name {
			return attributes[i].Value
		}
	}
	return ""
}

// Entry returns the request's bucket of item i, or nil when it is not held yet.
func (r *Registry) Entry(l *List, i int, attributes []limit.Attribute) *Entry {
	it := &l.Items[i]
	switch {
	case it.values == 0:
		return l.places[i].direct.Load()
	case it.only != nil:
		// What is found under the value as it came is right: entries have clean values only, and
		// addresses in one form.
		if e := r.entry(l, i, Lookup(attributes, *it.only)); e != nil {
			return e
		}
	}
	return r.entryOfMany(l, i, attributes)
}

func (r *Registry) entryOfMany(l *List, i int, attributes []limit.Attribute) *Entry {
	var buf [256]byte
	return r.entryBytes(l.places[i].scope, l.Items[i].append(buf[:0], attributes))
}

func (r *Registry) entry(l *List, i int, values string) *Entry {
	h := l.Items[i].hash
	switch l.Items[i].whose {
	case own:
		h ^= l.hash
	case anAncestors:
		h = l.places[i].scope.hash
	}
	return r.entryOf(l.places[i].scope, maphash.String(r.seed, values)^h, values)
}

// entryOf returns the scope's bucket of those values, whose hash that is; nil for none.
func (r *Registry) entryOf(s *Scope, hash uint64, values string) *Entry {
	return r.entries.find(hash, func(e *Entry) bool { return e.scope == s && e.values() == values })
}

func (r *Registry) entryBytes(s *Scope, values []byte) *Entry {
	return r.entryOf(s, maphash.Bytes(r.seed, values)^s.hash, unsafe.String(unsafe.SliceData(values), len(values)))
}

// hash is where a bucket of the scope is in the table.
func (r *Registry) hash(s *Scope, values string) uint64 {
	return maphash.String(r.seed, values) ^ s.hash
}

// append appends the request's values.
func (it *Item) append(dst []byte, attributes []limit.Attribute) []byte {
	for i := range int(it.values) {
		if i > 0 {
			dst = append(dst, valueSep...)
		}
		dst = it.Rule.AppendValue(dst, i, attributes)
	}
	return dst
}

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
	if r.tenants.live >= r.max {
		return nil, false
	}
	t = newTenant(id)
	t.touched.Store(true)
	r.pending[t] = struct{}{}
	r.tenants.insert(maphash.String(r.seed, id), t)
	r.askLocked(t)
	return t, true
}

func (r *Registry) askLocked(t *Tenant) {
	if !t.asking {
		t.asking = true
		r.unasked = append(r.unasked, t)
	}
}

// Unasked takes up to n tenants that the server is to be asked for. The owner's.
func (r *Registry) Unasked(n int) []*Tenant {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.unasked))
	if n == 0 {
		return nil
	}
	out := slices.Clone(r.unasked[:n])
	rest := copy(r.unasked, r.unasked[n:])
	clear(r.unasked[rest:])
	r.unasked = r.unasked[:rest]
	return out
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
	r.tenants.each(r.askLocked)
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
	return r.tenants.live
}

// Each calls f for every bucket that there was when it began. The owner's; nobody
// waits for it meanwhile.
func (r *Registry) Each(f func(*Entry)) { r.entries.each(f) }
