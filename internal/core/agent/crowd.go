package agent

import (
	"math"
	"slices"
)

// Who holds many buckets leaves room for others: nobody may hold more than so many times as many as are free. So who holds
// few always finds room, and of those who want much each has the same. It is asked only when a bucket is made, and only when
// few are free: the count is taken then.

// Share bounds what one holder may have of the buckets while nobody else holds any, in percent: a tenant, or a limit of the
// top level whose buckets say of no tenant. 100 is no bound. It is called before the first policy.
func (r *Registry) Share(percent int) { r.share = percent }

// most is how many buckets one holder may have while so many are free.
func (r *Registry) most(free int) int {
	if r.share >= 100 {
		return math.MaxInt
	}
	return max(free*r.share/(100-r.share), 1)
}

// crowds reports whether who would hold a new bucket of the scope holds all that it may. The mutex is held.
func (r *Registry) crowds(s *Scope, values []byte) bool {
	most := r.most(r.max - r.entries.live)
	return r.entries.live >= most && r.heldBy(s, string(values)) >= most
}

// heldBy is how many buckets the holder has of those values of the scope. The mutex is held.
func (r *Registry) heldBy(s *Scope, values string) int {
	n := int(s.entries)
	t := r.find(s.holder(values))
	if t == nil {
		return n
	}
	of := int(r.rooted[t])
	if set := t.set.Load(); set != nil {
		for sc := range set.ownScopes {
			of += int(sc.entries)
		}
	}
	if s.tenant == "" {
		return of
	}
	return max(of, n) // of a limit that is gone
}

// Level is how many buckets each of these holders may keep so that all have the same share: who has fewer keeps them.
func (r *Registry) Level(held []int) int {
	if r.share >= 100 {
		return r.max
	}
	slices.Sort(held)
	rest := 0
	for _, n := range held {
		rest += n
	}
	for i := range held {
		// The k largest are cut to one level, which is so many times what that leaves free.
		largest := held[len(held)-1-i]
		rest -= largest
		k := i + 1
		level := (r.max - rest) * r.share / (100 - r.share + k*r.share)
		if i == len(held)-1 || level >= held[len(held)-2-i] {
			return max(level, 1)
		}
	}
	return r.max
}

// Holder is who a bucket counts to.
type Holder struct {
	tenant string
	scope  *Scope // of the top level, where no value names a tenant
}

// Holder returns who the bucket counts to.
func (e *Entry) Holder() Holder {
	s := e.scope
	if id := s.holder(e.values()); id != "" {
		return Holder{tenant: id}
	}
	return Holder{scope: s}
}

// holder is the tenant that a bucket of those values counts to; empty for none.
func (s *Scope) holder(values string) string {
	if s.tenant != "" {
		return s.tenant
	}
	return s.rootedIn(values)
}

// Spare reports whether the bucket can make room for others, and since when nothing was collected from it: no request
// waits at it, has something of it, or is deciding. The owner's.
func (e *Entry) Spare() (since int64, ok bool) {
	if e.Flying || e.marks.Load() >= pinned || e.has(leaving) {
		return 0, false
	}
	return e.Idle()
}

// GiveUp has the next renewal return the lease; Yielded tells, after its answer, and once. The owner's.
func (e *Entry) GiveUp() { e.mark(leaving, true) }

// Yielded reports whether the bucket was given up, and is to be dropped if nobody came meanwhile. The owner's.
func (e *Entry) Yielded() bool {
	if !e.has(leaving) {
		return false
	}
	e.mark(leaving, false)
	return true
}
