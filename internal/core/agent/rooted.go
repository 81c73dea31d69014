package agent

import (
	"strings"
)

// A limit of the policy's top level that tells tenants apart counts usage of each, in buckets that are not the tenant's own.
// While there are any a tenant is not forgotten: its plan is part of what they book.

// rootedIn is the tenant whose usage a bucket of the top level counts; empty for other buckets.
func (e *Entry) rootedIn() string {
	return e.scope.rootedIn(e.values())
}

// rootedIn is that tenant, of a bucket of those values.
func (s *Scope) rootedIn(values string) string {
	at := s.tenantAt()
	if at < 0 {
		return ""
	}
	for range at {
		_, values, _ = strings.Cut(values, valueSep)
	}
	tenant, _, _ := strings.Cut(values, valueSep)
	return tenant
}

// root counts a bucket that was made, and unroot one that was dropped. The mutex is held.
func (r *Registry) root(e *Entry) {
	if t := r.find(e.rootedIn()); t != nil {
		r.rooted[t]++
	}
}

func (r *Registry) unroot(e *Entry) {
	t := r.find(e.rootedIn())
	if n := r.rooted[t]; n > 1 {
		r.rooted[t] = n - 1
	} else {
		delete(r.rooted, t)
	}
}

// planNow is the plan that the tenant of a row has: whose limits hold its requests at present. It takes no lock.
func (s *Scope) planNow(tenant string) string {
	if s.tenant != "" {
		return s.plan.Value()
	}
	if t := s.registry.find(tenant); t != nil {
		if set := t.set.Load(); set != nil {
			return set.plan.Value()
		}
	}
	return "" // it is as nobody knows it
}
