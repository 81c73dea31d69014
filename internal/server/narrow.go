package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// What an agent's key is for, in the methods that answer for each tenant by itself (access.go has the others).

// speaksFor refuses a caller whose key is another agent's.
func speaksFor(ctx context.Context, agent string) error {
	if p := principalOf(ctx); !p.speaksFor(agent) {
		if p.certified && (p.open || p.agents.Has(agent)) {
			return fmt.Errorf("%w: agent %s is no name of the client certificate, which has %q", fault.ErrDenied, limit.Quote(agent), p.names)
		}
		return fmt.Errorf("%w: key %s does not speak for agent %s", fault.ErrDenied, p.name, limit.Quote(agent))
	}
	return nil
}

// notFor says the same of a tenant that there is and of one that there is not.
func (s *scope) notFor(tenant string) error {
	return fmt.Errorf("%w: key %s is not for tenant %s", fault.ErrDenied, s.key, limit.Quote(tenant))
}

func (s *scope) notForLimit(name string) error {
	return fmt.Errorf("%w: key %s is not for limit %s", fault.ErrDenied, s.key, limit.Quote(name))
}

// narrow says what the tenants that a call asks for are to its key, nil for within all of them, and adds to wrong the renewals
// that are not the key's. A bucket is of a tenant that the renewal names, or, of the policy's top level, of
// one among its values. That of a tenant above is spent of by the requests of those below.
func (s *leaseService) narrow(ctx context.Context, now *inForce, req *quotav1.RenewRequest, wrong map[int]error) ([]reach, map[int]error) {
	p := principalOf(ctx)
	if p.scope == nil {
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
	all := p.scope.reach(ctx, ids)
	refuse := func(i int, err error) {
		if wrong == nil {
			wrong = make(map[int]error)
		}
		if wrong[i] == nil {
			wrong[i] = err
		}
	}
	for i, r := range req.Renewals {
		if !p.scope.hasLimit(r.Limit) {
			refuse(i, p.scope.notForLimit(r.Limit))
			continue
		}
		if places[i] < 0 {
			continue
		}
		switch is := all[places[i]]; {
		case is == undecided:
			refuse(i, fault.ErrUnavailable)
		case is == outside, is == above && r.Tenant == "":
			refuse(i, p.scope.notFor(ids[places[i]]))
		}
	}
	return all[:len(req.Tenants)], wrong
}

// topTenant is whose bucket a renewal of the policy's top level is of; empty where it is everybody's.
func topTenant(now *inForce, r *quotav1.Renewal) string {
	rules := now.rules
	if r.Shadow {
		rules = now.shadow
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

// bar has the rows of a report that are not the key's go to quarantine. It fails where that cannot be found out now.
func (s *scope) bar(ctx context.Context, r *ledger.Report) error {
	if s == nil {
		return nil
	}
	rows, err := ledger.DecodeRows(r.Payload)
	if err != nil {
		return nil //nolint:nilerr // the ledger keeps it whole
	}
	var ids []string
	seen := make(map[string]reach)
	for i := range rows {
		if _, ok := seen[rows[i].Tenant]; !ok {
			seen[rows[i].Tenant] = outside
			ids = append(ids, rows[i].Tenant)
		}
	}
	for i, is := range s.reach(ctx, ids) {
		if is == undecided {
			return fmt.Errorf("%w: whether key %s is for tenant %s cannot be found out now", fault.ErrUnavailable, s.key, limit.Quote(ids[i]))
		}
		seen[ids[i]] = is
	}
	r.Barred = func(row *ledger.Row) error {
		switch {
		case seen[row.Tenant] == above && row.Admitted == 0 && row.Overage == 0: // a limit of an ancestor denied the key's tenant
		case seen[row.Tenant] != within:
			return s.notFor(row.Tenant)
		case !s.hasLimit(row.Limit):
			return s.notForLimit(row.Limit)
		}
		return nil
	}
	return nil
}

// accounts leaves out what is said of limits that are not the key's.
func (s *scope) accounts(a *quotav1.LeaseAccounts) {
	if s != nil {
		a.Limits = slices.DeleteFunc(a.Limits, func(l *quotav1.LeaseAccount) bool { return !s.hasLimit(l.Limit) })
	}
}

// tell leaves out of a message what is not the key's to know: other tenants. Where that cannot be found out now, the agent asks
// again for all that it uses.
func (s *scope) tell(ctx context.Context, m *quotav1.WatchResponse) {
	if !s.narrowsTenants() {
		return
	}
	known := func(ids []string) []bool {
		out := make([]bool, len(ids))
		for i, is := range s.reach(ctx, ids) {
			out[i] = is == within || is == above
			m.RefreshTenants = m.RefreshTenants || is == undecided
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
		// Nobody says switches again: one that may be of the key's tenants is told.
		is, i := s.reach(ctx, m.Switches.DeniedTenants), -1
		m.Switches.DeniedTenants = slices.DeleteFunc(slices.Clone(m.Switches.DeniedTenants), func(string) bool { i++; return is[i] == outside })
	}
}
