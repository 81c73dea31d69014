package agent

import (
	"hash/maphash"

	"github.com/f4ee788f/quota/internal/core/table"
)

// Sweep forgets requests and tenants that were not used between its last calls. A tenant stays that holds a bucket, or is a
// known one's ancestor. It may take long, and nobody waits for more than a small part of it. While one is under way
// another does nothing.
func (r *Registry) Sweep() {
	if !r.sweeping.CompareAndSwap(false, true) {
		return
	}
	defer r.sweeping.Store(false)
	r.sweepKnown()
	for i := range table.Parts {
		r.sweepTenants(i)
	}
}

func (r *Registry) sweepTenants(part int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t := range r.tenants.Part(part) {
		if t.touched.Load() || t.asking {
			t.idle = 0
			t.touched.Store(false)
		} else {
			t.idle = min(t.idle+1, forgotten)
		}
		s := t.set.Load()
		// While buckets of the top level count its usage, its plan is needed to book them.
		if t.idle == forgotten && (s == nil || !s.holds()) && r.rooted[t] == 0 && t.below == 0 {
			r.forgetTenant(t)
		}
	}
}

// forgetTenant takes a tenant out that holds no bucket. The mutex is held.
func (r *Registry) forgetTenant(t *Tenant) {
	if s := t.set.Load(); s != nil {
		r.hasBelow(s, -1)
		s.gone.Store(true)
		for sc := range s.ownScopes {
			r.forget(sc)
		}
	}
	delete(r.pending, t)
	r.tenants.Remove(maphash.String(r.seed, t.id), t)
}

// hasBelow says that the set's ancestors have so many more, or fewer, sets below them. The mutex is held.
func (r *Registry) hasBelow(s *Set, n int32) {
	if len(s.Chain) == 0 {
		return
	}
	for _, id := range s.Chain[1:] {
		if t := r.find(id); t != nil {
			t.below += n
		}
	}
}

// SweepInvented forgets the tenants that the server does not know, used or not, once few have room: names are invented as
// easily as keys. The owner's.
func (r *Registry) SweepInvented() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tenants.Len() < r.max*15/16 {
		return
	}
	for t := range r.tenants.All() {
		s := t.set.Load()
		if t.known && !t.exists && !t.asking && t.below == 0 && r.rooted[t] == 0 && (s == nil || !s.holds()) {
			r.forgetTenant(t)
		}
	}
}
