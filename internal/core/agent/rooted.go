package agent

import "github.com/f4ee788f/quota/internal/core/match"

// A limit of the policy's top level may tell tenants apart: then its buckets count usage of tenants, and are not theirs. While
// there is such a bucket its tenant is not forgotten, for the tenant's plan is in the rows.

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
	return match.Value(values, at)
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
	return "" // the tenant is not known
}
