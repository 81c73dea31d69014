package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// closedError says that a tenant was closed.
func (r *row) closedError() error {
	return fmt.Errorf("%w: tenant %s was closed at %s; its id is not used again", policystore.ErrInvalid, r.ID, time.UnixMilli(r.Closed).UTC().Format(time.RFC3339))
}

// open returns the tenant of that id, or an error where there is none or it was closed.
func (t *tx) open(ctx context.Context, id string) (row, error) {
	r, err := t.one(ctx, id)
	if err == nil && r.Closed != 0 {
		err = r.closedError()
	}
	return r, err
}

// CloseTenant implements policystore.Store.
func (s *Store) CloseTenant(ctx context.Context, actor, id string) (limit.Tenant, error) {
	var out limit.Tenant
	err := s.change(ctx, func(t *tx) error {
		if err := t.makePlanChanges(ctx, nil); err != nil {
			return err
		}
		was, err := t.one(ctx, id)
		if err != nil {
			return err
		}
		doc, err := t.document(ctx, t.heads.Version)
		if err != nil {
			return err
		}
		if was.Closed != 0 {
			out, err = was.compile(doc, t.s.now())
			return err
		}
		if err := t.mayClose(ctx, id, doc); err != nil {
			return err
		}
		// Its overrides and other own settings end with it, so that none of them makes a later document invalid.
		next := row{ID: id, Plan: was.Plan, Parent: was.Parent, Billing: was.Billing, Closed: t.s.now().UnixMilli()}
		if err := t.write(ctx, &next); err != nil {
			return err
		}
		if err := t.noteEdges(ctx, id, nil); err != nil {
			return err
		}
		if _, err := t.ExecContext(ctx, "DELETE FROM plan_changes WHERE tenant = $1", id); err != nil {
			return unavailable("delete plan changes", err)
		}
		// No plan from now on: no fee is charged for the time after.
		if err := t.subscribe(ctx, map[string]string{id: ""}); err != nil {
			return err
		}
		if err := t.audit(actor, "tenant.delete", id, was.json(true), next.json(true)); err != nil {
			return err
		}
		out, err = next.compile(doc, t.s.now())
		return err
	})
	if err != nil {
		return limit.Tenant{}, err
	}
	return out, nil
}

// mayClose refuses to close a tenant with others under it, for which it may pay. It also refuses one that the document
// in force names: applied again, the document would bring it back.
func (t *tx) mayClose(ctx context.Context, id string, doc *policy.Document) error {
	rows, err := t.QueryContext(ctx, "SELECT id FROM tenants WHERE parent = $1 AND closed_ms = 0 ORDER BY id LIMIT $2", id, listed+1)
	ids, err := collect(rows, err, "read children", func(id *string, rows *sql.Rows) error { return rows.Scan(id) })
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		return fmt.Errorf("%w: tenant %s has others under it, and may pay for them: delete them first, or give them another parent: %s", policystore.ErrInvalid, id, list(ids))
	}
	below, err := payersBelow(ctx, t, id) // those too that are elsewhere by now
	if err != nil {
		return err
	}
	for of := range below {
		member, err := t.one(ctx, of)
		if err != nil || of == id || member.Closed != 0 {
			continue
		}
		for _, part := range below.Of(of) {
			if part.Payer == id && part.To > terms.NextSlot(t.s.now()) {
				return fmt.Errorf("%w: tenant %s pays for %s still: delete that one first, or have another pay", policystore.ErrInvalid, id, of)
			}
		}
	}
	if doc == nil {
		return nil
	}
	for _, spec := range doc.TenantSpecs() {
		if spec.ID == id || spec.Parent == id {
			return fmt.Errorf("%w: policy version %d names tenant %s; apply one that does not, then delete it", policystore.ErrInvalid, t.heads.Version, id)
		}
	}
	return nil
}

// noneClosed refuses a document that names a closed tenant, as a tenant or as a parent.
func (t *tx) noneClosed(ctx context.Context, doc *policy.Document) error {
	var ids []string
	for _, spec := range doc.TenantSpecs() {
		ids = append(ids, spec.ID)
		if spec.Parent != "" {
			ids = append(ids, spec.Parent)
		}
	}
	found, err := readTenants(ctx, t, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if r, ok := found[id]; ok && r.Closed != 0 {
			return fmt.Errorf("%w; take it out of the document", r.closedError())
		}
	}
	return nil
}
