package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/limit"
	"github.com/f4ee788f/quota/internal/policy"
)

// parentPays is the billing of a tenant whose parent pays for it, as it is stored.
var parentPays = policy.Billing{ParentPays: true}.Text()

// membersSQL are the tenants below $1 that it pays for; $2 is parentPays.
const membersSQL = `WITH RECURSIVE members(id, level) AS (
		SELECT id, 1 FROM tenants WHERE parent = $1 AND parent <> '' AND billing = $2
		UNION
		SELECT t.id, m.level + 1 FROM tenants t JOIN members m ON t.parent = m.id WHERE t.parent <> '' AND t.billing = $2 AND m.level <= $3
	) `

func members(ctx context.Context, q querier, payer string) ([]string, error) {
	rows, err := q.QueryContext(ctx, membersSQL+"SELECT id FROM members ORDER BY id LIMIT $4", payer, parentPays, limit.MaxTenantLevels, policy.MaxMembers+1)
	return collect(rows, err, "read members", func(id *string, rows *sql.Rows) error { return rows.Scan(id) })
}

// Members implements policy.Store.
func (s *Store) Members(ctx context.Context, payer string) ([]policy.Subscriber, error) {
	ids, err := members(ctx, s.db, payer)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	if len(ids) > policy.MaxMembers {
		return nil, fmt.Errorf("%w: tenant %s pays for more than %d tenants", policy.ErrInvalid, payer, policy.MaxMembers)
	}
	found, err := s.subscribers(ctx, ids)
	if err != nil {
		return nil, err
	}
	var all []policy.Subscriber
	for _, id := range ids {
		if of := found[id]; of != nil {
			if of.Err != nil {
				return nil, of.Err
			}
			all = append(all, of.Subscriber)
		}
	}
	return all, nil
}

// payer is who pays for a tenant: itself, or the first above whose own parent does not.
func (t *tx) payer(ctx context.Context, r row) (string, error) {
	for levels := 0; r.Billing == parentPays && r.Parent != "" && levels <= limit.MaxTenantLevels; levels++ {
		above, err := t.one(ctx, r.Parent)
		if err != nil {
			return "", err
		}
		r = above
	}
	return r.ID, nil
}

// keepsPayer refuses that another pays for a tenant once either had a statement of a time since the tenant,
// or one that it pays for, began: usage of that time would be on two statements, or on none.
func (t *tx) keepsPayer(ctx context.Context, tenant, before, after string) error {
	if before == after {
		return nil
	}
	ids, err := members(ctx, t, tenant)
	if err != nil {
		return err
	}
	began := int64(1) << 62
	for _, id := range append(ids, tenant) {
		var first sql.NullInt64
		if err := t.QueryRowContext(ctx, "SELECT min(from_ms) FROM subscriptions WHERE tenant = $1", id).Scan(&first); err != nil {
			return unavailable("read subscriptions", err)
		}
		if first.Valid {
			began = min(began, first.Int64)
		}
	}
	for _, payer := range []string{before, after} {
		closed, ok, err := t.closedThrough(ctx, payer)
		if err != nil {
			return err
		}
		if ok && closed.Unix() > began/1000 {
			return fmt.Errorf("%w: tenant %s: who pays for it cannot change from %s to %s: a statement of %s was closed through %s, and its usage until then would be on two statements, or on none",
				policy.ErrInvalid, tenant, before, after, payer, closed.UTC().Format(time.RFC3339))
		}
	}
	return nil
}
