package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

const closedColumns = "tenant, number, period, from_s, to_s, height, block_hash, digest, complete_ms, forced, actor, at_ms"

func scanClosed(c *terms.Closed, rows *sql.Rows, more ...any) error {
	var complete, at int64
	err := rows.Scan(append([]any{&c.Tenant, &c.Number, &c.Period.Name, &c.Period.From, &c.Period.To, &c.Block.Height, &c.Block.Hash, &c.Digest,
		&complete, &c.Forced, &c.Actor, &at}, more...)...)
	if complete != 0 {
		c.Complete = time.UnixMilli(complete)
	}
	c.At = time.UnixMilli(at)
	return err
}

// statement returns the statement of a period; ErrNotFound without it.
func statement(ctx context.Context, q querier, tenant, period string) (terms.Closed, error) {
	rows, err := q.QueryContext(ctx, "SELECT "+closedColumns+", document FROM statements WHERE tenant = $1 AND period = $2", tenant, period)
	all, err := collect(rows, err, "read statement", func(c *terms.Closed, rows *sql.Rows) error { return scanClosed(c, rows, &c.Document) })
	if err != nil {
		return terms.Closed{}, err
	}
	if len(all) == 0 {
		return terms.Closed{}, fmt.Errorf("%w: no statement of tenant %s was closed for %s", policystore.ErrNotFound, limit.Quote(tenant), limit.Quote(period))
	}
	return all[0], nil
}

// CloseStatement implements policystore.Store.
func (s *Store) CloseStatement(ctx context.Context, actor string, c terms.Closed, carried []billing.Carried, burns ...billing.Burn) (terms.Closed, error) {
	err := s.change(ctx, func(t *tx) error {
		tenant, err := t.one(ctx, c.Tenant)
		if err != nil {
			return err
		}
		rows, err := t.QueryContext(ctx, "SELECT "+closedColumns+" FROM statements WHERE tenant = $1 ORDER BY number DESC LIMIT 1", c.Tenant)
		last, err := collect(rows, err, "read statements", func(c *terms.Closed, rows *sql.Rows) error { return scanClosed(c, rows) })
		if err != nil {
			return err
		}
		number := int64(1)
		if len(last) > 0 {
			number = last[0].Number + 1
			if last[0].Period.Name == c.Period.Name {
				c, err = statement(ctx, t, c.Tenant, c.Period.Name)
				return err
			}
		}
		// This check comes first: a statement made before another was closed is not at fault, and is made again.
		if c.Number != number {
			return fmt.Errorf("%w: statement %d of tenant %s comes next, and this was made as %d", policystore.ErrConflict, number, c.Tenant, c.Number)
		}
		if len(last) > 0 {
			if last[0].Period.To != c.Period.From || last[0].Block.Height > c.Block.Height {
				return fmt.Errorf("%w: after the statement of %s, at block %d, comes none of %s at block %d",
					policystore.ErrInvalid, last[0].Period.Name, last[0].Block.Height, c.Period.Name, c.Block.Height)
			}
		}
		if c.Billing != tenant.Billing { // its period is none of the tenant's any more
			return fmt.Errorf("%w: the billing of tenant %s changed while its statement was made; make it again", policystore.ErrConflict, c.Tenant)
		}
		plans, err := t.plansBefore(ctx, c.Tenant, c.Period.To)
		if err != nil {
			return err
		}
		if c.Plans != plans {
			return fmt.Errorf("%w: a plan of tenant %s, or of those that it pays for, changed while its statement was made; make it again", policystore.ErrConflict, c.Tenant)
		}
		c.Actor, c.At = actor, time.UnixMilli(t.s.now().UnixMilli())
		complete := int64(0)
		if !c.Complete.IsZero() {
			complete = c.Complete.UnixMilli()
		}
		c.Billing, c.Plans = "", 0
		if err := t.insert(ctx, "INSERT INTO statements ("+closedColumns+", document) VALUES ", "", [][]any{{
			c.Tenant, c.Number, c.Period.Name, c.Period.From, c.Period.To, c.Block.Height, c.Block.Hash, c.Digest,
			complete, c.Forced, actor, c.At.UnixMilli(), c.Document,
		}}); err != nil {
			return unavailable("write statement", err)
		}
		if err := t.burn(ctx, &c, burns); err != nil {
			return err
		}
		if err := t.carry(ctx, &c, carried); err != nil {
			return err
		}
		return t.audit(actor, "statement.close", c.Tenant, nil, map[string]any{
			"period": c.Period.Name, "number": c.Number, "height": c.Block.Height, "digest": c.Digest, "forced": c.Forced,
		})
	})
	if err != nil {
		return terms.Closed{}, err
	}
	return c, nil
}

// Statement implements policystore.Store.
func (s *Store) Statement(ctx context.Context, tenant, period string) (terms.Closed, error) {
	return statement(ctx, s.db, tenant, period)
}

// Statements implements policystore.Store.
func (s *Store) Statements(ctx context.Context, tenant string, before int64, n int) ([]terms.Closed, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT "+closedColumns+` FROM statements
		WHERE tenant = $1 AND (CAST($2 AS bigint) = 0 OR number < $2) ORDER BY number DESC LIMIT $3`, tenant, before, page(n))
	return collect(rows, err, "read statements", func(c *terms.Closed, rows *sql.Rows) error { return scanClosed(c, rows) })
}

// plansBefore is the value of terms.Closed.Plans.
func (t *tx) plansBefore(ctx context.Context, tenant string, to int64) (n int64, err error) {
	err = t.QueryRowContext(ctx, belowSQL+`SELECT (SELECT count(*) FROM subscriptions s WHERE s.from_ms <= $2 AND (s.tenant = $1 OR s.tenant IN (SELECT id FROM below)))
		+ (SELECT count(*) FROM payers p WHERE p.from_s < $3 AND (p.tenant = $1 OR p.tenant IN (SELECT id FROM below)))`,
		tenant, 1000*(to-1), to).Scan(&n)
	return n, unavailable("count subscriptions", err)
}

// closedThrough is the end of a tenant's last statement; false without one.
func (t *tx) closedThrough(ctx context.Context, tenant string) (time.Time, bool, error) {
	var last sql.NullInt64
	if err := t.QueryRowContext(ctx, "SELECT max(to_s) FROM statements WHERE tenant = $1", tenant).Scan(&last); err != nil {
		return time.Time{}, false, unavailable("read statements", err)
	}
	return time.Unix(last.Int64, 0), last.Valid, nil
}

// keepsBilling refuses other periods for a tenant with statements. The periods after them would overlap theirs, or
// leave a gap.
func (t *tx) keepsBilling(ctx context.Context, tenant string) error {
	var closed bool
	if err := t.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM statements WHERE tenant = $1)", tenant).Scan(&closed); err != nil {
		return unavailable("read statements", err)
	}
	if closed {
		return fmt.Errorf("%w: tenant %s: zone and period of its billing cannot change once a statement was closed, even if another tenant pays. Its next period would overlap the last one, or leave a gap", policystore.ErrInvalid, tenant)
	}
	return nil
}
