package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// row is a tenant as stored: comparable.
type row struct {
	ID, Plan, Parent string
	Overrides        string // JSON of []policy.LimitSpec; empty for none
	Suspended        int64  // 0 or 1
	Change           int64
	Billing          string // policy.Billing.Text
	Cap              string // terms.Cap.Text
	Capped           string // terms.Capped.Text
	Closed           int64  // Unix milliseconds; 0 while it is open
}

func (r *row) values() []any {
	return []any{r.ID, r.Plan, r.Parent, r.Overrides, r.Suspended, r.Change, r.Billing, r.Cap, r.Capped, r.Closed}
}

// json is the audit log's form of a tenant; nil if there was none.
func (r *row) json(there bool) any {
	if !there {
		return nil
	}
	m := map[string]any{"plan": r.Plan}
	if r.Parent != "" {
		m["parent"] = r.Parent
	}
	if r.Overrides != "" {
		m["limits"] = json.RawMessage(r.Overrides)
	}
	if r.Suspended != 0 {
		m["suspended"] = true
	}
	if r.Billing != "" {
		m["billing"] = json.RawMessage(r.Billing)
	}
	if r.Cap != "" {
		m["spending_cap"] = json.RawMessage(r.Cap)
	}
	if r.Capped != "" {
		m["capped"] = json.RawMessage(r.Capped)
	}
	if r.Closed != 0 {
		m["closed"] = time.UnixMilli(r.Closed).UTC().Format(time.RFC3339)
	}
	return m
}

// compile returns the tenant as doc makes it at a time. Without overrides it needs no plan of doc's. Overrides that are
// not in effect then must fit all the same.
func (r *row) compile(doc *policy.Document, at time.Time) (limit.Tenant, error) {
	t := limit.Tenant{ID: r.ID, Exists: true, Plan: r.Plan, Parent: r.Parent, Revision: r.Change, Suspended: r.Suspended != 0 || r.Closed != 0, Closed: r.Closed != 0}
	capped, err := terms.ParseCapped(r.Capped)
	if err != nil {
		return t, fmt.Errorf("tenant %s: capped: %w", r.ID, err)
	}
	if r.Overrides == "" {
		capped.Hold(&t)
		return t, nil
	}
	spec, err := r.spec()
	if err != nil {
		return t, err
	}
	c, err := doc.Tenant(spec)
	if now := policy.InEffect(spec.Overrides, at); err == nil && len(now) < len(spec.Overrides) {
		spec.Overrides = now
		c, err = doc.Tenant(spec)
	}
	t.Overrides = c.Overrides
	capped.Hold(&t)
	return t, err
}

// spec is the tenant as it was written, except for its billing and its spending cap.
func (r *row) spec() (policy.TenantSpec, error) {
	spec := policy.TenantSpec{ID: r.ID, Plan: r.Plan, Parent: r.Parent}
	if r.Overrides == "" {
		return spec, nil
	}
	if err := json.Unmarshal([]byte(r.Overrides), &spec.Overrides); err != nil {
		return spec, fmt.Errorf("tenant %s: overrides: %w", r.ID, err)
	}
	return spec, nil
}

func overridesText(specs []policy.LimitSpec) (string, error) {
	if len(specs) == 0 {
		return "", nil
	}
	b, err := json.Marshal(specs)
	return string(b), err
}

const tenantColumns = "id, plan, parent, overrides, suspended, change, billing, spending_cap, capped, closed_ms"

// seen is a tenant as one statement saw it, with the policy version then in force. So compiling the one against the
// other needs no transaction.
type seen struct {
	row
	version versionID
}

// selectTenants reads a seen for each tenant.
const selectTenants = "SELECT " + tenantColumns + `, (SELECT version FROM policy_heads WHERE id = 1),
	coalesce((SELECT v.created_ms FROM policy_heads h JOIN policy_versions v ON v.number = h.version WHERE h.id = 1), 0) FROM tenants `

func scanTenant(r *seen, rows *sql.Rows) error {
	return rows.Scan(&r.ID, &r.Plan, &r.Parent, &r.Overrides, &r.Suspended, &r.Change, &r.Billing, &r.Cap, &r.Capped, &r.Closed, &r.version.number, &r.version.createdMS)
}

// readTenants returns the stored ones of the ids.
func readTenants(ctx context.Context, q querier, ids []string) (map[string]seen, error) {
	found := make(map[string]seen, len(ids))
	for chunk := range slices.Chunk(ids, selectIDs) {
		var b strings.Builder
		b.WriteString(selectTenants + "WHERE id IN (")
		args := make([]any, len(chunk))
		for i, id := range chunk {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(i + 1))
			args[i] = id
		}
		b.WriteByte(')')
		rows, err := q.QueryContext(ctx, b.String(), args...)
		all, err := collect(rows, err, "read tenants", scanTenant)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			found[r.ID] = r
		}
	}
	return found, nil
}

// compile returns the tenant as the version in force at the read made it. A tenant that cannot be made out goes into
// faulty, and is returned without its own limits.
func (s *Store) compile(ctx context.Context, r *seen, faulty *policystore.FaultyTenants) (limit.Tenant, error) {
	var doc *policy.Document
	var unread unreadError
	var err error
	if r.Overrides != "" {
		if doc, err = s.document(ctx, s.db, r.version); err != nil && !errors.As(err, &unread) {
			return limit.Tenant{}, err
		}
	}
	var t limit.Tenant
	if err == nil {
		t, err = r.row.compile(doc, s.now())
	}
	if err != nil {
		if *faulty == nil {
			*faulty = make(policystore.FaultyTenants)
		}
		(*faulty)[r.ID] = err
		t = limit.Tenant{ID: r.ID, Exists: true, Plan: r.Plan, Parent: r.Parent, Revision: r.Change, Suspended: r.Suspended != 0 || r.Closed != 0, Closed: r.Closed != 0}
	}
	return t, nil
}

// orNil returns nil if no tenant is faulty.
func orNil(faulty policystore.FaultyTenants) error {
	if faulty == nil {
		return nil
	}
	return faulty
}

// Tenants implements policystore.Store.
func (s *Store) Tenants(ctx context.Context, ids []string) ([]limit.Tenant, error) {
	found, err := readTenants(ctx, s.db, ids)
	if err != nil {
		return nil, err
	}
	var faulty policystore.FaultyTenants
	tenants := make([]limit.Tenant, len(ids))
	for i, id := range ids {
		r, ok := found[id]
		if !ok {
			tenants[i] = limit.Tenant{ID: id}
			continue
		}
		if tenants[i], err = s.compile(ctx, &r, &faulty); err != nil {
			return nil, err
		}
	}
	return tenants, orNil(faulty)
}

// list compiles the tenants that a query selects.
func (s *Store) list(ctx context.Context, query string, args ...any) ([]limit.Tenant, error) {
	rows, err := s.db.QueryContext(ctx, query, args...)
	all, err := collect(rows, err, "read tenants", scanTenant)
	if err != nil {
		return nil, err
	}
	var faulty policystore.FaultyTenants
	tenants := make([]limit.Tenant, len(all))
	for i := range all {
		if tenants[i], err = s.compile(ctx, &all[i], &faulty); err != nil {
			return nil, err
		}
	}
	return tenants, orNil(faulty)
}

// TenantPage implements policystore.Store.
func (s *Store) TenantPage(ctx context.Context, after string, n int) ([]limit.Tenant, error) {
	return s.list(ctx, selectTenants+"WHERE id > $1 ORDER BY id LIMIT $2", after, page(n))
}

// TenantChanges implements policystore.Store.
func (s *Store) TenantChanges(ctx context.Context, after int64, n int) ([]limit.Tenant, int64, error) {
	// Heads are read before the tenants: changes committed in between are told again, and none is missed.
	h, err := s.Heads(ctx)
	if err != nil {
		return nil, 0, err
	}
	n = page(n)
	tenants, err := s.list(ctx, selectTenants+"WHERE change > $1 ORDER BY change LIMIT $2", after, n)
	if err != nil && tenants == nil {
		return nil, 0, err
	}
	through := max(after, h.Tenants)
	if len(tenants) > 0 {
		last := tenants[len(tenants)-1].Revision
		if len(tenants) == n {
			return tenants, last, err
		}
		through = max(through, last)
	}
	return tenants, through, err
}

// one returns the tenant of that id as stored, or ErrNotFound.
func (t *tx) one(ctx context.Context, id string) (row, error) {
	found, err := readTenants(ctx, t, []string{id})
	if err != nil {
		return row{}, err
	}
	r, ok := found[id]
	if !ok {
		return row{}, fmt.Errorf("%w: tenant %s", policystore.ErrNotFound, limit.Quote(id))
	}
	return r.row, nil
}

// write stores the tenant under the next change number.
func (t *tx) write(ctx context.Context, r *row) error {
	t.heads.Tenants++
	r.Change = t.heads.Tenants
	err := t.insert(ctx, "INSERT INTO tenants ("+tenantColumns+") VALUES ",
		` ON CONFLICT (id) DO UPDATE SET plan = excluded.plan, parent = excluded.parent, overrides = excluded.overrides,
		suspended = excluded.suspended, change = excluded.change, billing = excluded.billing,
		spending_cap = excluded.spending_cap, capped = excluded.capped, closed_ms = excluded.closed_ms`, [][]any{r.values()})
	return unavailable("write tenant", err)
}

// checkPlan reports a plan that the policy in force lacks.
func (t *tx) checkPlan(ctx context.Context, plan string) (*policy.Document, error) {
	doc, err := t.document(ctx, t.heads.Version)
	if err != nil {
		return nil, err
	}
	if doc == nil {
		return nil, fmt.Errorf("%w: there is no policy yet, so no plan %s", policystore.ErrInvalid, limit.Quote(plan))
	}
	if doc.Policy(0).Plan(plan) == nil {
		return nil, fmt.Errorf("%w: the policy in force has no plan %s", policystore.ErrInvalid, limit.Quote(plan))
	}
	return doc, nil
}

// checkLevels reports a tenant whose chain, from its root to its deepest
// descendant, is too long.
func (t *tx) checkLevels(ctx context.Context, id string) error {
	var up, down int
	err := t.QueryRowContext(ctx, `WITH RECURSIVE above(id, parent, level) AS (
			SELECT id, parent, 1 FROM tenants WHERE id = $1
			UNION ALL
			SELECT t.id, t.parent, a.level + 1 FROM tenants t JOIN above a ON t.id = a.parent WHERE a.level <= $2
		) SELECT max(level) FROM above`, id, limit.MaxTenantLevels).Scan(&up)
	if err != nil {
		return unavailable("read ancestors", err)
	}
	err = t.QueryRowContext(ctx, `WITH RECURSIVE below(id, level) AS (
			SELECT id, 0 FROM tenants WHERE id = $1
			UNION ALL
			SELECT t.id, b.level + 1 FROM tenants t JOIN below b ON t.parent = b.id WHERE t.parent <> '' AND b.level <= $2
		) SELECT max(level) FROM below`, id, limit.MaxTenantLevels).Scan(&down)
	if err != nil {
		return unavailable("read descendants", err)
	}
	if up+down > limit.MaxTenantLevels {
		return fmt.Errorf("%w: tenant %s would be in a chain of more than %d tenants, from the root down", policystore.ErrInvalid, id, limit.MaxTenantLevels)
	}
	return nil
}

// Parent implements policystore.Store.
func (s *Store) Parent(ctx context.Context, id string) (is bool, err error) {
	if err := s.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM tenants WHERE parent = $1)", id).Scan(&is); err != nil {
		return false, unavailable("read children", err)
	}
	return is, nil
}

// CreateTenant implements policystore.Store.
func (s *Store) CreateTenant(ctx context.Context, actor, id, plan, parent string) (limit.Tenant, error) {
	var out limit.Tenant
	if !limit.ValidTenant(id) {
		return out, fmt.Errorf("%w: %s is not a tenant's id: it has %s", policystore.ErrInvalid, limit.Quote(id), limit.TenantForm)
	}
	err := s.change(ctx, func(t *tx) error {
		if r, err := t.one(ctx, id); err == nil && r.Closed != 0 {
			return fmt.Errorf("%w: %w", policystore.ErrExists, r.closedError())
		} else if err == nil {
			return fmt.Errorf("%w: tenant %s", policystore.ErrExists, id)
		} else if !errors.Is(err, policystore.ErrNotFound) {
			return err
		}
		doc, err := t.checkPlan(ctx, plan)
		if err != nil {
			return err
		}
		if parent != "" {
			if _, err := t.open(ctx, parent); errors.Is(err, policystore.ErrNotFound) {
				return fmt.Errorf("%w: the parent %s does not exist", policystore.ErrInvalid, limit.Quote(parent))
			} else if err != nil {
				return err
			}
		}
		r := row{ID: id, Plan: plan, Parent: parent}
		if err := t.write(ctx, &r); err != nil {
			return err
		}
		if err := t.subscribe(ctx, map[string]string{id: plan}); err != nil {
			return err
		}
		if parent != "" {
			if err := t.checkLevels(ctx, id); err != nil {
				return err
			}
		}
		if err := t.audit(actor, "tenant.create", id, nil, r.json(true)); err != nil {
			return err
		}
		out, err = r.compile(doc, t.s.now())
		return err
	})
	if err != nil {
		return limit.Tenant{}, err
	}
	return out, nil
}

// SetTenantPlan implements policystore.Store.
func (s *Store) SetTenantPlan(ctx context.Context, actor, id, plan string) (limit.Tenant, error) {
	var out limit.Tenant
	err := s.change(ctx, func(t *tx) error {
		if err := t.makePlanChanges(ctx, nil); err != nil {
			return err
		}
		was, next, doc, err := t.withPlan(ctx, id, plan)
		if err != nil {
			return err
		}
		if next != was {
			if err := t.retryPlanChanges(ctx); err != nil {
				return err
			}
			if err := t.write(ctx, &next); err != nil {
				return err
			}
			if err := t.subscribe(ctx, map[string]string{id: plan}); err != nil {
				return err
			}
			if err := t.audit(actor, "tenant.set-plan", id, was.json(true), next.json(true)); err != nil {
				return err
			}
		}
		out, err = next.compile(doc, t.s.now())
		return err
	})
	if err != nil {
		return limit.Tenant{}, err
	}
	return out, nil
}

// SetSuspended implements policystore.Store.
func (s *Store) SetSuspended(ctx context.Context, actor, id string, suspended bool) (limit.Tenant, error) {
	var out limit.Tenant
	err := s.change(ctx, func(t *tx) error {
		was, err := t.open(ctx, id)
		if err != nil {
			return err
		}
		next, action := was, "tenant.resume"
		next.Suspended = 0
		if suspended {
			next.Suspended, action = 1, "tenant.suspend"
		}
		if next != was {
			if err := t.write(ctx, &next); err != nil {
				return err
			}
			if err := t.audit(actor, action, id, was.json(true), next.json(true)); err != nil {
				return err
			}
		}
		doc, err := t.document(ctx, t.heads.Version)
		if err != nil {
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
