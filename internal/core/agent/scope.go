package agent

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"sync/atomic"
	"unique"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// Scope is a limit as one tenant holds it, with the state that its buckets share. Its identity outlives policy
// versions; its rules follow them.
//
// There are as many as tenants, so bytes count: fields that they have in common are in the kind.
type Scope struct {
	*kind
	tenant string // who holds it; empty at the policy's top level
	hash   uint64

	direct atomic.Pointer[Entry]        // the bucket, where no values tell several apart
	now    atomic.Pointer[bucket.Terms] // that its buckets go by, each once it follows

	// The registry's, under its mutex.
	beyond  *Scope                // of the limit's overage; nil where it has no such bucket
	version int64                 // policy version that usage is booked under
	plan    unique.Handle[string] // the holder's; at the top level see Set.plan
	round   int32                 // of the last rebuild that found it in force; orphaned
	entries int32
}

// orphaned is the round of a scope that the policy no longer has: its buckets are to be given up.
const orphaned = -1

func (s *Scope) orphan() bool { return s.round == orphaned }

// kind is what scopes of different tenants have in common: a limit of one name, by the same attributes.
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
	slots   bool // its units are slots
	overage bool // its buckets count what a soft limit admits above itself
	shadow  bool // of the shadow version
}

func keyOf(l *limit.Limit, shadow bool) kindKey {
	return kindKey{limit: l.Name, by: match.Join(l.By), counts: l.CountsOnly(), slots: l.Slots > 0, shadow: shadow}
}

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

// scope returns a tenant's scope of that key, new or not. The mutex is held.
func (r *Registry) scope(key kindKey, tenant string, names []string) (s *Scope, fresh bool) {
	k := r.kinds[key]
	if k == nil {
		k = &kind{kindKey: key, registry: r, hash: maphash.Comparable(r.seed, key), names: names}
		r.kinds[key] = k
	}
	hash := k.hash ^ bits.RotateLeft64(maphash.String(r.seed, tenant), 32) // another than that of a key of the same name
	if s = r.scopes.Find(hash, func(s *Scope) bool { return s.kind == k && s.tenant == tenant }); s != nil {
		return s, false
	}
	s = &Scope{kind: k, tenant: tenant, hash: hash}
	r.scopes.Insert(hash, s)
	k.scopes++
	return s, true
}

// forget takes out a scope that has no bucket. The mutex is held.
func (r *Registry) forget(s *Scope) {
	if !r.scopes.Remove(s.hash, s) {
		return // it was forgotten already
	}
	if s.scopes--; s.scopes == 0 {
		delete(r.kinds, s.kindKey)
	}
}
