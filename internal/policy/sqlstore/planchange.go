package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

const planChangeColumns = "tenant, at_ms, plan, actor, failed"

func scanPlanChange(c *terms.PlanChange, rows *sql.Rows) error {
	var at int64
	err := rows.Scan(&c.Tenant, &at, &c.Plan, &c.Actor, &c.Failed)
	c.At = time.UnixMilli(at)
	return err
}

// planChangeJSON is the audit log's form of a scheduled change.
func planChangeJSON(c *terms.PlanChange) any {
	return map[string]any{"plan": c.Plan, "at": c.At.UTC().Format(time.RFC3339)}
}

func planChanges(ctx context.Context, q querier, id string) ([]terms.PlanChange, error) {
	rows, err := q.QueryContext(ctx, "SELECT "+planChangeColumns+" FROM plan_changes WHERE tenant = $1 ORDER BY at_ms", id)
	return collect(rows, err, "read plan changes", scanPlanChange)
}

// PlanChanges implements policystore.Store.
func (s *Store) PlanChanges(ctx context.Context, id string) ([]terms.PlanChange, error) {
	return planChanges(ctx, s.db, id)
}

// SchedulePlan implements policystore.Store.
func (s *Store) SchedulePlan(ctx context.Context, actor, id, plan string, at time.Time) (limit.Tenant, error) {
	var out limit.Tenant
	at = time.UnixMilli(at.UnixMilli())
	err := s.change(ctx, func(t *tx) error {
		if err := t.makePlanChanges(ctx, nil); err != nil {
			return err
		}
		was, _, doc, err := t.withPlan(ctx, id, plan)
		if err != nil {
			return err
		}
		if out, err = was.compile(doc, t.s.now()); err != nil {
			return err
		}
		stamp := at.UTC().Format(time.RFC3339)
		switch now := t.s.now(); {
		case !at.After(now):
			return fmt.Errorf("%w: %s is past; leave the time out to change the plan now", policystore.ErrInvalid, stamp)
		case at.Sub(now) > terms.MaxPlanAhead:
			return fmt.Errorf("%w: %s is more than a hundred years ahead", policystore.ErrInvalid, stamp)
		}
		waiting, err := planChanges(ctx, t, id)
		if err != nil {
			return err
		}
		for _, c := range waiting {
			switch {
			case c.At.Equal(at) && c.Plan == plan:
				return nil
			case c.At.Equal(at):
				return fmt.Errorf("%w: tenant %s changes to plan %s at %s; cancel that first", policystore.ErrExists, id, c.Plan, stamp)
			}
		}
		if len(waiting) >= terms.MaxPlanChanges {
			return fmt.Errorf("%w: %d plan changes of tenant %s wait already, as many as may", policystore.ErrInvalid, len(waiting), id)
		}
		if err := t.insert(ctx, "INSERT INTO plan_changes ("+planChangeColumns+") VALUES ", "", [][]any{{id, at.UnixMilli(), plan, actor, ""}}); err != nil {
			return unavailable("write plan change", err)
		}
		return t.audit(actor, "tenant.schedule-plan", id, nil, planChangeJSON(&terms.PlanChange{Plan: plan, At: at}))
	})
	if err != nil {
		return limit.Tenant{}, err
	}
	return out, nil
}

// UnschedulePlan implements policystore.Store.
func (s *Store) UnschedulePlan(ctx context.Context, actor, id string, at time.Time) (limit.Tenant, error) {
	var out limit.Tenant
	err := s.change(ctx, func(t *tx) error {
		// A change whose time has come meanwhile is made, and cannot be taken back.
		if err := t.makePlanChanges(ctx, nil); err != nil {
			return err
		}
		r, err := t.one(ctx, id)
		if err != nil {
			return err
		}
		waiting, err := planChanges(ctx, t, id)
		if err != nil {
			return err
		}
		for _, c := range waiting {
			if c.At.UnixMilli() != at.UnixMilli() {
				continue
			}
			if _, err := t.ExecContext(ctx, "DELETE FROM plan_changes WHERE tenant = $1 AND at_ms = $2", id, at.UnixMilli()); err != nil {
				return unavailable("delete plan change", err)
			}
			if err := t.audit(actor, "tenant.unschedule-plan", id, planChangeJSON(&c), nil); err != nil {
				return err
			}
			doc, err := t.document(ctx, t.heads.Version)
			if err != nil {
				return err
			}
			out, err = r.compile(doc, t.s.now())
			return err
		}
		return fmt.Errorf("%w: no plan change of tenant %s waits for %s", policystore.ErrNotFound, id, at.UTC().Format(time.RFC3339Nano))
	})
	if err != nil {
		return limit.Tenant{}, err
	}
	return out, nil
}

// MakePlanChanges implements policystore.Store.
func (s *Store) MakePlanChanges(ctx context.Context) (failed []terms.PlanChange, err error) {
	var due bool
	if err := s.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM plan_changes WHERE failed = '' AND at_ms <= $1) OR EXISTS (SELECT 1 FROM override_edges WHERE at_ms <= $1)", s.now().UnixMilli()).Scan(&due); err != nil {
		return nil, unavailable("read plan changes", err)
	}
	if !due {
		return nil, nil
	}
	err = s.change(ctx, func(t *tx) error { return t.makePlanChanges(ctx, &failed) })
	return failed, err
}

// makePlanChanges makes the plan changes that are due, before any other change. So a plan that was to come first comes
// first, even if no server was running at its time.
func (t *tx) makePlanChanges(ctx context.Context, failed *[]terms.PlanChange) error {
	rows, err := t.QueryContext(ctx, "SELECT "+planChangeColumns+" FROM plan_changes WHERE failed = '' AND at_ms <= $1 ORDER BY at_ms, tenant", t.s.now().UnixMilli())
	due, err := collect(rows, err, "read plan changes", scanPlanChange)
	if err != nil {
		return err
	}
	if err := t.passEdges(ctx); err != nil {
		return err
	}
	ids := make([]string, len(due))
	for i := range due {
		ids[i] = due[i].Tenant
	}
	last, err := t.lastSubscriptions(ctx, ids)
	if err != nil {
		return err
	}
	for _, c := range due {
		t.wrote = true
		var err error
		if given, ok := last[c.Tenant]; ok && given >= c.At.UnixMilli() {
			err = t.overtaken(&c)
		} else {
			err = t.makePlanChange(ctx, &c)
		}
		switch {
		case err == nil:
			_, err = t.ExecContext(ctx, "DELETE FROM plan_changes WHERE tenant = $1 AND at_ms = $2", c.Tenant, c.At.UnixMilli())
		case errors.Is(err, policystore.ErrInvalid), errors.Is(err, policystore.ErrNotFound):
			c.Failed = err.Error()
			if failed != nil {
				*failed = append(*failed, c)
			}
			_, err = t.ExecContext(ctx, "UPDATE plan_changes SET failed = $1 WHERE tenant = $2 AND at_ms = $3", c.Failed, c.Tenant, c.At.UnixMilli())
		default:
			return err
		}
		if err != nil {
			return unavailable("make plan change", err)
		}
	}
	return nil
}

// withPlan returns a tenant as it is, and as it would be with another plan of the document in force. The plan must fit
// it.
func (t *tx) withPlan(ctx context.Context, id, plan string) (was, next row, doc *policy.Document, err error) {
	if was, err = t.open(ctx, id); err != nil {
		return was, next, nil, err
	}
	if doc, err = t.checkPlan(ctx, plan); err != nil {
		return was, next, nil, err
	}
	next = was
	next.Plan = plan
	if _, err := next.compile(doc, t.s.now()); err != nil {
		return was, next, nil, err
	}
	return was, next, doc, doc.CheckCap(was.Cap, plan)
}

// makePlanChange checks everything before it writes: an error leaves no trace. A change that could not be made at its
// time counts from the end of the last statement closed since. The closed period was billed under the plan before.
func (t *tx) makePlanChange(ctx context.Context, c *terms.PlanChange) error {
	if has, err := t.one(ctx, c.Tenant); err != nil || has.Plan == c.Plan {
		return err // also where the plan is no more, or does not fit
	}
	was, next, _, err := t.withPlan(ctx, c.Tenant, c.Plan)
	if err != nil {
		return err
	}
	at := c.At
	if closed, err := t.closedOf(ctx, c.Tenant, at); err != nil {
		return err
	} else if closed.After(at) {
		at = closed
	}
	if err := t.write(ctx, &next); err != nil {
		return err
	}
	if err := t.subscribeFrom(ctx, map[string]string{c.Tenant: c.Plan}, at); err != nil {
		return err
	}
	return t.audit(c.Actor, "tenant.set-plan", c.Tenant, was.json(true), next.json(true))
}

// overtaken notes that a plan change is not made. While it did not fit, its tenant was given a later plan: by hand, by
// a document or by the next change. That plan stays.
func (t *tx) overtaken(c *terms.PlanChange) error {
	return t.audit(c.Actor, "tenant.unschedule-plan", c.Tenant, planChangeJSON(c), nil)
}

// retryPlanChanges has failed changes tried again, because something has changed.
func (t *tx) retryPlanChanges(ctx context.Context) error {
	if _, err := t.ExecContext(ctx, "UPDATE plan_changes SET failed = '' WHERE failed <> ''"); err != nil {
		return unavailable("write plan changes", err)
	}
	return nil
}
