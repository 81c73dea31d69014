package agent

import (
	"math"
	"slices"
)

// A holder may have at most a fixed multiple of the free buckets. So a holder of few always finds room, and all holders
// that want many get the same number. Buckets are counted only when one is made while few are free.

// Share bounds, in percent, how many of the buckets one holder may have while nobody else has any. A holder is a
// tenant, or a limit of the top level whose buckets name no tenant. 100 is no bound. It is called before the first
// policy.
func (r *Registry) Share(percent int) { r.share = percent }

// most is how many buckets one holder may have.
func (r *Registry) most(free int) int {
	if r.share >= 100 {
		return math.MaxInt
	}
	return max(free*r.share/(100-r.share), 1)
}

// crowds reports whether the holder of a new bucket has all that it may. The mutex is held.
func (r *Registry) crowds(s *Scope, values string) bool {
	most := r.most(r.max - r.entries.Len())
	return r.entries.Len() >= most && r.heldBy(s, values) >= most
}

// heldBy is how many buckets the scope's holder has. The mutex is held.
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

// Level is how many buckets each of these holders may keep, so that those who have more end with the same number.
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
		// The k largest are cut to one level: the multiple of what that leaves free.
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

// Spare reports whether the bucket can make room for others, for no request waits at it, has units of it, or is deciding.
// It also says since when nothing was collected from it. The owner's.
func (e *Entry) Spare() (since int64, ok bool) {
	if e.Flying || e.inUse() || e.has(leaving) {
		return 0, false
	}
	return e.Idle()
}

// GiveUp has the next renewal return the lease; after its answer Yielded says so, once. The owner's.
func (e *Entry) GiveUp() { e.mark(leaving, true) }

// Yielded reports whether the bucket was given up, and is to be dropped if nobody came meanwhile. The owner's.
func (e *Entry) Yielded() bool {
	if !e.has(leaving) {
		return false
	}
	e.mark(leaving, false)
	return true
}
