package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// SetTenantLimit implements policystore.Store.
func (s *Store) SetTenantLimit(ctx context.Context, actor, id string, spec policy.LimitSpec, add bool) (policy.LimitChange, error) {
	return s.changeOverrides(ctx, actor, "tenant.set-limit", id, spec.Name, func(all []policy.LimitSpec, plan *limit.Plan) ([]policy.LimitSpec, error) {
		for i := range all {
			if all[i].Name == spec.Name {
				all[i] = spec
				return all, nil
			}
		}
		if !add && !slices.ContainsFunc(plan.Limits, func(l limit.Limit) bool { return l.Name == spec.Name }) {
			return nil, fmt.Errorf("%w: plan %s of tenant %s has no limit %s; it has %s (a limit of the tenant's own has to be added)",
				policystore.ErrInvalid, plan.Name, id, spec.Name, limitNames(plan))
		}
		return append(all, spec), nil
	})
}

// UnsetTenantLimit implements policystore.Store.
func (s *Store) UnsetTenantLimit(ctx context.Context, actor, id, name string) (policy.LimitChange, error) {
	return s.changeOverrides(ctx, actor, "tenant.unset-limit", id, name, func(all []policy.LimitSpec, _ *limit.Plan) ([]policy.LimitSpec, error) {
		return slices.DeleteFunc(all, func(o policy.LimitSpec) bool { return o.Name == name }), nil
	})
}

func limitNames(plan *limit.Plan) string {
	var names []string
	for i := range plan.Limits {
		names = append(names, plan.Limits[i].Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// changeOverrides stores a tenant's overrides as change makes them. Only the named limit's override may differ.
func (s *Store) changeOverrides(ctx context.Context, actor, action, id, name string, change func(all []policy.LimitSpec, plan *limit.Plan) ([]policy.LimitSpec, error)) (policy.LimitChange, error) {
	var out policy.LimitChange
	err := s.change(ctx, func(t *tx) error {
		if err := t.makePlanChanges(ctx, nil); err != nil {
			return err
		}
		was, err := t.open(ctx, id)
		if err != nil {
			return err
		}
		doc, err := t.checkPlan(ctx, was.Plan)
		if err != nil {
			return err
		}
		spec, err := was.spec()
		if err != nil {
			return err
		}
		overrides, err := change(spec.Overrides, doc.Policy(0).Plan(was.Plan))
		if err != nil {
			return err
		}
		next := was
		if next.Overrides, err = overridesText(overrides); err != nil {
			return err
		}
		after, err := next.compile(doc, t.s.now())
		if err != nil {
			return err
		}
		out = policy.LimitChange{Tenant: after, Changed: next != was}
		if !out.Changed {
			return nil
		}
		before, err := was.compile(doc, t.s.now())
		if err != nil { // which this may mend
			before = limit.Tenant{ID: id, Exists: true, Plan: was.Plan, Parent: was.Parent, Suspended: after.Suspended}
		}
		if out.Changes = policy.DiffTenant(before, after); len(out.Changes) == 0 {
			out.Changes = []string{fmt.Sprintf("tenant %s: its override of limit %s is written otherwise, or is in effect at another time", id, name)}
		}
		out.Warnings = takesBack(doc, t.heads.Version, id, name, overrides)
		if err := t.retryPlanChanges(ctx); err != nil {
			return err
		}
		if err := t.write(ctx, &next); err != nil {
			return err
		}
		out.Tenant.Revision = next.Change
		if err := t.noteEdges(ctx, id, overrides); err != nil {
			return err
		}
		return t.audit(actor, action, id, was.json(true), next.json(true))
	})
	if err != nil {
		return policy.LimitChange{}, err
	}
	return out, nil
}

// takesBack warns if the document in force names the tenant with another value for the limit. Applied again, the
// document would win.
func takesBack(doc *policy.Document, version int64, id, name string, overrides []policy.LimitSpec) []string {
	for _, spec := range doc.TenantSpecs() {
		if spec.ID == id && overrideText(spec.Overrides, name) != overrideText(overrides, name) {
			return []string{fmt.Sprintf("policy version %d names tenant %s and says otherwise of its limit %s: applied again, the document takes this back; write it there as well", version, id, name)}
		}
	}
	return nil
}

// overrideText is the override of that limit as a store keeps it; empty for none.
func overrideText(all []policy.LimitSpec, name string) string {
	for i := range all {
		if all[i].Name == name {
			text, _ := overridesText(all[i : i+1]) // of strings and numbers
			return text
		}
	}
	return ""
}
