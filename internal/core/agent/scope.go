package agent

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"unique"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Scope is a limit as one tenant holds it: what its buckets have in common. Its
// identity outlives policy versions; what it says follows them.
//
// There are as many as tenants, so that bytes count: what those of other tenants have as well is in the kind.
type Scope struct {
	*kind
	tenant string // who holds it; empty at the policy's top level
	hash   uint64

	direct atomic.Pointer[Entry]        // the bucket, where no values tell several apart
	now    atomic.Pointer[bucket.Terms] // that its buckets go by, each once it follows

	// The registry's, under its mutex.
	beyond  *Scope                // of what the limit admits above itself; nil where it has no such bucket
	version int64                 // policy version that usage is booked under
	plan    unique.Handle[string] // and the plan of who holds it; of no use at the top level, where it is each tenant's own: see Set.plan
	round   int64                 // of the last rebuild that found it in force
	entries int32
	orphan  bool // the policy no longer has it: its buckets are to be given up
}

// kind is what the scopes of all tenants have in common that hold a limit of one name, whose buckets the same attributes tell apart.
type kind struct {
	kindKey
	registry *Registry
	hash     uint64   // the part of its scopes' hashes that is no tenant's
	names    []string // of the values
	scopes   int      // guarded by the registry's mutex
}

type kindKey struct {
	limit   string
	by      string
	counts  bool // has no rate
	slots   bool // its units are slots: what was spent as tokens never ends, and is not in use
	overage bool // the buckets of what a soft limit admits above itself
	shadow  bool // of the shadow version
}

func keyOf(l *limit.Limit, shadow bool) kindKey {
	return kindKey{limit: l.Name, by: strings.Join(l.By, valueSep), counts: l.CountsOnly(), slots: l.Slots > 0, shadow: shadow}
}

func (s *Scope) ownHash() uint64 { return s.hash }

// held is the limit as the tenant has it now, but for the meter.
func (s *Scope) held() limit.Held {
	t := s.now.Load()
	return limit.Held{Rule: t.Rule, Rate: t.Rate, Burst: t.Burst, Tenant: s.tenant}
}

// tenantAt returns which of the values is the tenant, for a limit of the top level; -1 where none is.
func (s *Scope) tenantAt() int {
	if s.tenant != "" {
		return -1
	}
	return slices.Index(s.names, limit.AttrTenant)
}

// hashOf is a tenant's part of the hashes of its scopes; 0 for none.
func (r *Registry) hashOf(tenant string) uint64 {
	if tenant == "" {
		return 0
	}
	return bits.RotateLeft64(maphash.String(r.seed, tenant), 32) // of a tenant that is a value as well, the two differ
}

// scope returns a tenant's scope of that key, new or not. The mutex is held.
func (r *Registry) scope(key kindKey, tenant string, names []string) (s *Scope, fresh bool) {
	k := r.kinds[key]
	if k == nil {
		k = &kind{kindKey: key, registry: r, hash: maphash.Comparable(r.seed, key), names: names}
		r.kinds[key] = k
	}
	hash := k.hash ^ r.hashOf(tenant)
	if s = r.scopes.find(hash, func(s *Scope) bool { return s.kind == k && s.tenant == tenant }); s != nil {
		return s, false
	}
	s = &Scope{kind: k, tenant: tenant, hash: hash}
	r.scopes.insert(hash, s)
	k.scopes++
	return s, true
}

// forget takes a scope out of which there is no bucket. The mutex is held.
func (r *Registry) forget(s *Scope) {
	if !r.scopes.remove(s.hash, s) {
		return // it was forgotten already
	}
	if s.scopes--; s.scopes == 0 {
		delete(r.kinds, s.kindKey)
	}
}
