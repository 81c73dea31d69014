package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// Apply implements policystore.Store.
func (s *Store) Apply(ctx context.Context, actor string, doc *policy.Document, base int64, dryRun bool) (policystore.Applied, error) {
	var out policystore.Applied
	err := s.change(ctx, func(t *tx) error {
		if base != 0 && base != t.heads.Version {
			return fmt.Errorf("%w: version %d is, and the change was made from %d", policystore.ErrConflict, t.heads.Version, base)
		}
		var err error
		was := t.heads.Version
		if out, err = t.apply(ctx, actor, "policy.apply", doc); err != nil {
			return err
		}
		if dryRun {
			out.Version = was
			return errDryRun
		}
		return nil
	})
	return out, err
}

// Rollback implements policystore.Store.
func (s *Store) Rollback(ctx context.Context, actor string, version int64) (policystore.Applied, error) {
	var out policystore.Applied
	err := s.change(ctx, func(t *tx) error {
		if version < 1 {
			return fmt.Errorf("%w: version %d", policystore.ErrNotFound, version)
		}
		v, err := readVersion(ctx, t, version)
		if err != nil {
			return err
		}
		doc, err := policy.Parse(v.File, []byte(v.Text))
		if err != nil {
			return fmt.Errorf("version %d: %w", version, err)
		}
		out, err = t.apply(ctx, actor, "policy.rollback", doc)
		return err
	})
	return out, err
}

// apply makes doc the next version. It writes as it goes; a caller that wants none of it rolls the transaction back.
func (t *tx) apply(ctx context.Context, actor, action string, doc *policy.Document) (policystore.Applied, error) {
	before, err := t.document(ctx, t.heads.Version)
	if err != nil {
		return policystore.Applied{}, err
	}
	if err := t.makePlanChanges(ctx, nil); err != nil {
		return policystore.Applied{}, err
	}
	if err := t.noneClosed(ctx, doc); err != nil {
		return policystore.Applied{}, err
	}
	changes := policy.DiffPolicy(before, doc)
	tenantChanges, takenBack, err := t.applyTenants(ctx, actor, before, doc)
	if err != nil {
		return policystore.Applied{}, err
	}
	if err := t.checkPlans(ctx, before, doc); err != nil {
		return policystore.Applied{}, err
	}
	if err := t.checkCaps(ctx, doc); err != nil {
		return policystore.Applied{}, err
	}
	if err := t.refit(ctx, before, doc); err != nil {
		return policystore.Applied{}, err
	}
	changes = append(append(changes, tenantChanges...), unnamed(before, doc)...)
	if len(changes) == 0 && before != nil {
		return policystore.Applied{Version: t.heads.Version}, nil
	}
	if err := t.retryPlanChanges(ctx); err != nil {
		return policystore.Applied{}, err
	}
	was := t.heads.Version
	if t.heads.Version, err = t.insertVersion(ctx, actor, doc, 0); err != nil {
		return policystore.Applied{}, err
	}
	warnings, err := t.restarts(ctx, before, doc)
	if err != nil {
		return policystore.Applied{}, err
	}
	changes = policy.Bounded(append(warnings, changes...)) // first: a long list is cut
	if err := t.audit(actor, action, strconv.FormatInt(t.heads.Version, 10), versionJSON{Version: was}, versionJSON{t.heads.Version, changes}); err != nil {
		return policystore.Applied{}, err
	}
	return policystore.Applied{Version: t.heads.Version, Changed: true, Changes: changes, Warnings: policy.BoundedFaults(takenBack)}, nil
}

// unnamed says which tenants before named and doc does not. They stay, and may be deleted from then on.
func unnamed(before, doc *policy.Document) (changes []string) {
	if before == nil {
		return nil
	}
	named := make(map[string]bool)
	for _, spec := range doc.TenantSpecs() {
		named[spec.ID] = true
	}
	for _, spec := range before.TenantSpecs() {
		if !named[spec.ID] {
			changes = append(changes, fmt.Sprintf("tenant %s: no longer in the document; it stays as it is", spec.ID))
		}
	}
	return changes
}

// versionJSON is what the audit log keeps of a version.
type versionJSON struct {
	Version int64    `json:"version"`
	Changes []string `json:"changes,omitempty"`
}

// insertVersion stores doc under the next number. Shadows share the sequence of numbers.
func (t *tx) insertVersion(ctx context.Context, actor string, doc *policy.Document, shadow int64) (number int64, err error) {
	if err := t.QueryRowContext(ctx, "SELECT coalesce(max(number), 0) + 1 FROM policy_versions").Scan(&number); err != nil {
		return 0, unavailable("read versions", err)
	}
	_, err = t.ExecContext(ctx, "INSERT INTO policy_versions (number, document, file, author, created_ms, shadow) VALUES ($1, $2, $3, $4, $5, $6)",
		number, doc.Text(), doc.File(), actor, t.s.now().UnixMilli(), shadow)
	return number, unavailable("write version", err)
}

// applyTenants upserts the tenants that doc names. It returns the changes, and those of them that take back settings
// made by hand.
func (t *tx) applyTenants(ctx context.Context, actor string, before, doc *policy.Document) (changes []string, takenBack policy.Faults, _ error) {
	specs := doc.TenantSpecs()
	ids := make([]string, len(specs))
	for i := range specs {
		ids[i] = specs[i].ID
	}
	stored, err := readTenants(ctx, t, ids)
	if err != nil {
		return nil, nil, err
	}
	compiled := doc.Tenants()
	older := make(map[string]*policy.TenantSpec)
	if before != nil {
		for i, spec := range before.TenantSpecs() {
			older[spec.ID] = &before.TenantSpecs()[i]
		}
	}
	var rows [][]any
	plans := make(map[string]string) // of tenants that have another than before
	var moved []string               // tenants that were there, and have another parent now
	var payers []payerChange         // tenants of which another may pay
	for i := range specs {
		overrides, err := overridesText(specs[i].Overrides)
		if err != nil {
			return nil, nil, err
		}
		next := row{ID: specs[i].ID, Plan: specs[i].Plan, Parent: specs[i].Parent, Overrides: overrides, Billing: specs[i].Billing.Text(), Cap: specs[i].Cap.Text()}
		was, there := stored[next.ID]
		if there {
			next.Suspended, next.Change, next.Capped = was.Suspended, was.Change, was.Capped
			if next == was.row {
				continue
			}
			byHand, _ := was.spec() // overrides that cannot be read are none that anyone meant
			takenBack = append(takenBack, doc.At(&specs[i], policy.TakenBack(byHand, older[next.ID], specs[i]))...)
			if next.Parent != was.Parent {
				moved = append(moved, next.ID)
			}
		}
		billed, err := terms.ParseBilling(was.Billing)
		if err != nil {
			return nil, nil, fmt.Errorf("tenant %s: billing: %w", next.ID, err)
		}
		if there && !billed.SamePeriods(specs[i].Billing) {
			if err := t.keepsBilling(ctx, next.ID); err != nil {
				return nil, nil, err
			}
		}
		if next.Billing != was.Billing || next.Parent != was.Parent {
			payers = append(payers, payerChange{next.ID, payerOf(next.Parent, specs[i].Billing), specs[i].Billing.From, there})
		}
		if !there || next.Plan != was.Plan {
			plans[next.ID] = next.Plan
		}
		t.heads.Tenants++
		next.Change = t.heads.Tenants
		rows = append(rows, next.values())

		var old limit.Tenant
		if there {
			if old, err = was.row.compile(before, t.s.now()); err != nil { // which this may mend
				old = limit.Tenant{ID: next.ID, Exists: true, Plan: was.Plan, Parent: was.Parent, Suspended: was.Suspended != 0}
			}
		}
		after := compiled[i]
		after.Suspended = next.Suspended != 0
		capped, err := terms.ParseCapped(next.Capped)
		if err != nil {
			return nil, nil, fmt.Errorf("tenant %s: capped: %w", next.ID, err)
		}
		capped.Hold(&after)
		said := policy.DiffTenant(old, after)
		said = append(said, terms.DiffBilling(next.ID, billed, specs[i].Billing)...)
		wasCap, err := terms.ParseCap(was.Cap)
		if err != nil {
			return nil, nil, fmt.Errorf("tenant %s: spending cap: %w", next.ID, err)
		}
		said = append(said, terms.DiffCap(next.ID, wasCap, specs[i].Cap)...)
		if len(said) == 0 {
			said = []string{fmt.Sprintf("tenant %s: its overrides are written otherwise", next.ID)}
		}
		changes = append(changes, said...)
		if err := t.noteEdges(ctx, next.ID, specs[i].Overrides); err != nil {
			return nil, nil, err
		}
		if err := t.audit(actor, "tenant.apply", next.ID, was.json(there), next.json(true)); err != nil {
			return nil, nil, err
		}
	}
	err = t.insert(ctx, "INSERT INTO tenants ("+tenantColumns+") VALUES ",
		` ON CONFLICT (id) DO UPDATE SET plan = excluded.plan, parent = excluded.parent,
		overrides = excluded.overrides, change = excluded.change, billing = excluded.billing,
		spending_cap = excluded.spending_cap`, rows)
	if err != nil {
		return nil, nil, unavailable("write tenants", err)
	}
	if err := t.subscribe(ctx, plans); err != nil {
		return nil, nil, err
	}
	for _, id := range moved {
		if err := t.checkLevels(ctx, id); err != nil {
			return nil, nil, err
		}
	}
	said, err := t.changePayers(ctx, actor, payers)
	if err != nil {
		return nil, nil, err
	}
	return append(changes, said...), takenBack, nil
}

// listed is how many tenants a refusal names.
const listed = 10

// checkPlans refuses a document that lacks a plan of some stored tenant.
func (t *tx) checkPlans(ctx context.Context, before, doc *policy.Document) error {
	if before == nil {
		return nil
	}
	var refused []string
	after := doc.Policy(0)
	for _, p := range before.Policy(0).Plans {
		if after.Plan(p.Name) != nil {
			continue
		}
		rows, err := t.QueryContext(ctx, "SELECT id FROM tenants WHERE plan = $1 AND closed_ms = 0 ORDER BY id LIMIT $2", p.Name, listed+1)
		ids, err := collect(rows, err, "read tenants", func(id *string, rows *sql.Rows) error { return rows.Scan(id) })
		if err != nil {
			return err
		}
		if len(ids) > 0 {
			refused = append(refused, fmt.Sprintf("plan %s is gone from the document, and these tenants have it: %s", p.Name, list(ids)))
		}
		rows, err = t.QueryContext(ctx, "SELECT DISTINCT tenant FROM plan_changes WHERE plan = $1 ORDER BY tenant LIMIT $2", p.Name, listed+1)
		if ids, err = collect(rows, err, "read plan changes", func(id *string, rows *sql.Rows) error { return rows.Scan(id) }); err != nil {
			return err
		}
		if len(ids) > 0 {
			refused = append(refused, fmt.Sprintf("plan %s is gone from the document, and these tenants will have it: %s", p.Name, list(ids)))
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("%w: %s", policystore.ErrInvalid, strings.Join(refused, "; "))
	}
	return nil
}

// checkCaps refuses a document that prices plans of stored tenants in another currency than their own caps, which would
// count no charges. It skips tenants that the document names, because their caps were read beside its prices.
func (t *tx) checkCaps(ctx context.Context, doc *policy.Document) error {
	rows, err := t.QueryContext(ctx, selectTenants+"WHERE spending_cap <> '' ORDER BY id")
	all, err := collect(rows, err, "read tenants", scanTenant)
	if err != nil {
		return err
	}
	var first error
	var ids []string
	named := make(map[string]bool)
	for _, spec := range doc.TenantSpecs() {
		named[spec.ID] = true
	}
	for i := range all {
		if named[all[i].ID] {
			continue
		}
		if err := doc.CheckCap(all[i].Cap, all[i].Plan); err != nil {
			first = cmp.Or(first, err)
			ids = append(ids, all[i].ID)
		}
	}
	if first != nil {
		return fmt.Errorf("%w (%s)", first, list(ids))
	}
	return nil
}

func list(ids []string) string {
	if len(ids) > listed {
		return strings.Join(ids[:listed], ", ") + " and more"
	}
	return strings.Join(ids, ", ")
}

// overridden returns the stored tenants that have overrides.
func (t *tx) overridden(ctx context.Context) ([]seen, error) {
	rows, err := t.QueryContext(ctx, selectTenants+"WHERE overrides <> '' ORDER BY id")
	return collect(rows, err, "read tenants", scanTenant)
}

// fit compiles the overrides of stored tenants against doc, and refuses doc if they do not fit.
func fit(all []seen, doc *policy.Document, at time.Time) ([]limit.Tenant, error) {
	compiled := make([]limit.Tenant, len(all))
	var refused, ids []string
	for i := range all {
		var err error
		if compiled[i], err = all[i].row.compile(doc, at); err != nil {
			refused = append(refused, err.Error())
			ids = append(ids, all[i].ID)
		}
	}
	if len(refused) > 0 {
		return nil, fmt.Errorf("%w: overrides of stored tenants do not fit the document: %s (first: %s)", policystore.ErrInvalid, list(ids), refused[0])
	}
	return compiled, nil
}

// refit compiles the overrides of stored tenants against doc. A tenant whose result differs has changed, and agents are
// told.
func (t *tx) refit(ctx context.Context, before, doc *policy.Document) error {
	if before == nil {
		return nil
	}
	all, err := t.overridden(ctx)
	if err != nil {
		return err
	}
	after, err := fit(all, doc, t.s.now())
	if err != nil {
		return err
	}
	for i := range all {
		was, err := all[i].row.compile(before, t.s.now())
		if err == nil && reflect.DeepEqual(was.Overrides, after[i].Overrides) {
			continue
		}
		t.heads.Tenants++
		if _, err := t.ExecContext(ctx, "UPDATE tenants SET change = $1 WHERE id = $2", t.heads.Tenants, all[i].ID); err != nil {
			return unavailable("write tenants", err)
		}
	}
	return nil
}

// Version implements policystore.Store.
func (s *Store) Version(ctx context.Context, number int64) (policystore.Version, error) {
	if number == 0 {
		h, err := s.Heads(ctx)
		if err != nil {
			return policystore.Version{}, err
		}
		number = h.Version
	}
	return readVersion(ctx, s.db, number)
}

func readVersion(ctx context.Context, q querier, number int64) (policystore.Version, error) {
	v := policystore.Version{Number: number}
	var ms int64
	err := q.QueryRowContext(ctx, "SELECT document, file, author, created_ms, shadow FROM policy_versions WHERE number = $1", number).
		Scan(&v.Text, &v.File, &v.Author, &ms, &v.Shadow)
	if errors.Is(err, sql.ErrNoRows) {
		if number == 0 {
			return v, fmt.Errorf("%w: no policy has been applied yet", policystore.ErrNotFound)
		}
		return v, fmt.Errorf("%w: version %d", policystore.ErrNotFound, number)
	}
	v.Created = time.UnixMilli(ms)
	return v, unavailable("read version", err)
}

// Versions implements policystore.Store.
func (s *Store) Versions(ctx context.Context, before int64, n int) ([]policystore.Version, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT number, file, author, created_ms, shadow FROM policy_versions
		WHERE CAST($1 AS bigint) = 0 OR number < $1 ORDER BY number DESC LIMIT $2`, before, page(n))
	return collect(rows, err, "read versions", func(v *policystore.Version, rows *sql.Rows) error {
		var ms int64
		err := rows.Scan(&v.Number, &v.File, &v.Author, &ms, &v.Shadow)
		v.Created = time.UnixMilli(ms)
		return err
	})
}
