package view

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// Resolved is a tenant and its rules, or why they are not known.
type Resolved struct {
	Tenant limit.Tenant
	parent string        // as it is stored: of one that cannot be made out it may be another than the tenant's
	placed bool          // the parent is known, in spite of err maybe
	Rules  []*limit.Rule // of its plan, with overrides; none when it has no plan
	shadow []*limit.Rule // of its plan under the shadow policy, likewise; none without one
	Err    error
}

// Tenants resolves ids in their order: from memory, and the others in one read. It does not wait for a store that is
// away. A tenant that cannot be made out stays as it was; if it was not known before, it is an error of its own.
func (v *View) Tenants(ctx context.Context, ids []string) []Resolved {
	out := make([]Resolved, len(ids))
	var missing []string
	var places []int
	faults := 0
	v.mu.Lock()
	now, away, since := v.now, v.err, v.now.Heads.Tenants
	for i, id := range ids {
		if r, ok := v.cache.get(id, now); ok {
			out[i] = r
			continue
		}
		if f, ok := v.faulty[id]; ok && (away != nil || time.Now().Before(f.again)) {
			out[i] = v.lastLocked(id, now, f)
			faults++
			continue
		}
		missing = append(missing, id)
		places = append(places, i)
	}
	v.mu.Unlock()
	v.metrics.tenantLoads.WithLabelValues("hit").Add(float64(len(ids) - len(missing) - faults))
	v.metrics.tenantLoads.WithLabelValues("error").Add(float64(faults))
	if len(missing) == 0 {
		return out
	}
	var loaded []limit.Tenant
	var faulty policystore.FaultyTenants
	err := away
	if err == nil {
		loadCtx, cancel := context.WithTimeout(ctx, loadTimeout)
		loaded, err = v.store.Tenants(loadCtx, missing)
		cancel()
		if errors.As(err, &faulty) {
			err = nil
		}
		if err == nil && len(loaded) != len(missing) {
			err = fmt.Errorf("the policy store answered %d of %d tenants", len(loaded), len(missing))
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.metrics.tenantLoads.WithLabelValues("error").Add(float64(len(missing)))
		for i, at := range places {
			out[at].Err = err
			if f, ok := v.faulty[missing[i]]; ok {
				out[at] = v.lastLocked(missing[i], now, f)
			}
		}
		return out
	}
	v.metrics.tenantLoads.WithLabelValues("miss").Add(float64(len(missing) - len(faulty)))
	v.metrics.tenantLoads.WithLabelValues("error").Add(float64(len(faulty)))
	for i, t := range loaded {
		// A tenant that changed during the read is answered, but not kept: it may be stale.
		keep := v.now == now && v.journal.unchanged(t.ID, since)
		if fault := faulty[t.ID]; fault != nil {
			f := faultyTenant{err: fault, parent: t.Parent}
			if keep {
				v.faultyLocked(t.ID, f)
			}
			out[places[i]] = v.lastLocked(t.ID, now, f)
			continue
		}
		if keep {
			v.soundLocked(t.ID)
		}
		out[places[i]] = v.cache.put(t, now, keep)
	}
	v.metrics.tenants.Set(float64(v.cache.len()))
	return out
}

// Above returns the tenant directly above each, and whether that is known now.
func (v *View) Above(ctx context.Context, ids []string) (parents []string, known []bool) {
	parents, known = make([]string, len(ids)), make([]bool, len(ids))
	for i, r := range v.Tenants(ctx, ids) {
		parents[i], known[i] = r.parent, r.placed
	}
	return parents, known
}

// Parents are the parents in the store, which is asked each time.
func (v *View) Parents(ctx context.Context, ids, begin []string) ([]string, error) {
	return v.store.Parents(ctx, ids, begin)
}

// Overrides are the overrides of each tenant. It fails if one tenant's cannot be made out.
func (v *View) Overrides(ctx context.Context, ids []string) ([][]limit.Limit, error) {
	all := make([][]limit.Limit, len(ids))
	for i, r := range v.Tenants(ctx, ids) {
		if r.Err != nil {
			return nil, r.Err
		}
		all[i] = r.Tenant.Overrides
	}
	return all, nil
}

// Version is the policy's in force; 0 before one is known.
func (v *View) Version() int64 { return v.Current().Version() }
