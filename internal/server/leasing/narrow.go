package leasing

import (
	"context"
	"slices"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/view"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// narrow says how each tenant that a call asks for relates to its key; nil means that all are within. It adds to wrong
// the renewals that the key does not cover. A bucket's tenant is the one that the renewal names, or, for a top-level
// limit, one among its values. A key may spend from a bucket of a tenant above its own, because requests of tenants
// below spend from it.
func (s *Service) narrow(ctx context.Context, now *view.InForce, req *quotav1.RenewRequest, wrong map[int]error) ([]authn.Reach, map[int]error) {
	p := authn.PrincipalOf(ctx)
	if p.Scope == nil {
		return nil, wrong
	}
	ids := slices.Clone(req.Tenants)
	places := make([]int, len(req.Renewals))
	for i, r := range req.Renewals {
		places[i] = -1
		id := r.Tenant
		if id == "" {
			id = topTenant(now, r)
		}
		if id != "" {
			places[i] = len(ids)
			ids = append(ids, id)
		}
	}
	all := p.Scope.Reach(ctx, ids)
	refuse := func(i int, err error) {
		if wrong == nil {
			wrong = make(map[int]error)
		}
		if wrong[i] == nil {
			wrong[i] = err
		}
	}
	for i, r := range req.Renewals {
		if !p.Scope.HasLimit(r.Limit) {
			refuse(i, p.Scope.NotForLimit(r.Limit))
			continue
		}
		if places[i] < 0 {
			continue
		}
		switch is := all[places[i]]; {
		case is == authn.Undecided:
			refuse(i, fault.ErrUnavailable)
		case is == authn.Outside, is == authn.Above && r.Tenant == "":
			refuse(i, p.Scope.NotFor(ids[places[i]]))
		}
	}
	return all[:len(req.Tenants)], wrong
}

// topTenant is the tenant of the bucket of a top-level renewal; empty if the bucket is everybody's.
func topTenant(now *view.InForce, r *quotav1.Renewal) string {
	rules := now.Rules
	if r.Shadow {
		rules = now.Shadow
	}
	if rules == nil {
		return ""
	}
	for _, rule := range rules.Top() {
		if rule.Limit.Name == r.Limit {
			return countedTenant(rule, r)
		}
	}
	return ""
}

// tell removes from a message the tenants that the key does not cover. If that cannot be found out now, the agent asks
// again for all tenants that it uses.
func tell(ctx context.Context, s *authn.Scope, m *quotav1.WatchResponse) {
	if !s.NarrowsTenants() {
		return
	}
	known := func(ids []string) []bool {
		out := make([]bool, len(ids))
		for i, is := range s.Reach(ctx, ids) {
			out[i] = is == authn.Within || is == authn.Above
			m.RefreshTenants = m.RefreshTenants || is == authn.Undecided
		}
		return out
	}
	if len(m.Tenants) > 0 {
		ids := make([]string, len(m.Tenants))
		for i, t := range m.Tenants {
			ids[i] = t.Id
		}
		is, i := known(ids), -1
		m.Tenants = slices.DeleteFunc(m.Tenants, func(*quotav1.Tenant) bool { i++; return !is[i] })
	}
	if m.Switches != nil && len(m.Switches.DeniedTenants) > 0 {
		// Nobody sends switches again, so a tenant that may be covered is told.
		is, i := s.Reach(ctx, m.Switches.DeniedTenants), -1
		m.Switches.DeniedTenants = slices.DeleteFunc(slices.Clone(m.Switches.DeniedTenants), func(string) bool { i++; return is[i] == authn.Outside })
	}
}
