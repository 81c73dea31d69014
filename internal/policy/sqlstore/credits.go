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

const selectCredits = `SELECT c.id, c.tenant, c.currency, c.amount, c.priority, c.given_ms, c.expires, c.rollover, c.note, c.actor,
		coalesce((SELECT b.left_after FROM credit_burns b WHERE b.credit = c.id ORDER BY b.number DESC LIMIT 1), c.amount),
		coalesce(v.at_ms, 0), coalesce(v.reason, ''), c.carried
	FROM credits c LEFT JOIN credit_voids v ON v.credit = c.id `

func scanCredit(c *terms.Credit, rows *sql.Rows) error {
	var given, voided int64
	err := rows.Scan(&c.ID, &c.Tenant, &c.Currency, &c.Amount, &c.Priority, &given, &c.Expires, &c.Rollover, &c.Note, &c.Actor, &c.Left, &voided, &c.Why, &c.Carried)
	c.Given = time.UnixMilli(given)
	if voided != 0 {
		c.Voided = time.UnixMilli(voided)
	}
	return err
}

func credit(ctx context.Context, q querier, id string) (terms.Credit, error) {
	rows, err := q.QueryContext(ctx, selectCredits+"WHERE c.id = $1", id)
	all, err := collect(rows, err, "read credit", scanCredit)
	if err != nil {
		return terms.Credit{}, err
	}
	if len(all) == 0 {
		return terms.Credit{}, fmt.Errorf("%w: credit %s", policystore.ErrNotFound, limit.Quote(id))
	}
	return all[0], nil
}

// Credits implements policystore.Store.
func (s *Store) Credits(ctx context.Context, tenant string) ([]terms.Credit, error) {
	rows, err := s.db.QueryContext(ctx, selectCredits+"WHERE c.tenant = $1 ORDER BY c.id", tenant)
	return collect(rows, err, "read credits", scanCredit)
}

// GiveCredit implements policystore.Store.
func (s *Store) GiveCredit(ctx context.Context, actor string, c terms.Credit) (terms.Credit, error) {
	c.Rollover = max(c.Rollover, -1)
	var out terms.Credit
	err := s.change(ctx, func(t *tx) error {
		was, err := credit(ctx, t, c.ID)
		if err == nil {
			same := was.Tenant == c.Tenant && was.Currency == c.Currency && was.Amount == c.Amount && was.Priority == c.Priority &&
				was.Expires == c.Expires && was.Rollover == c.Rollover && was.Note == c.Note
			if out = was; same {
				return nil
			}
			return fmt.Errorf("%w: credit %s, and it says something else", policystore.ErrExists, c.ID)
		}
		now := t.s.now()
		if err := c.Check(now); err != nil { // before all else, for the id may be none
			return err
		}
		if _, err := t.one(ctx, c.Tenant); err != nil {
			return err
		}
		var n int
		if err := t.QueryRowContext(ctx, "SELECT count(*) FROM credits WHERE tenant = $1 AND carried = 0", c.Tenant).Scan(&n); err != nil {
			return unavailable("count credits", err)
		}
		if n >= terms.MaxCredits {
			return fmt.Errorf("%w: tenant %s has %d credits, and no more are allowed", policystore.ErrInvalid, c.Tenant, n)
		}
		if err := t.insert(ctx, "INSERT INTO credits (id, tenant, currency, amount, priority, given_ms, expires, rollover, note, actor) VALUES ", "", [][]any{{
			c.ID, c.Tenant, c.Currency, c.Amount, c.Priority, now.UnixMilli(), c.Expires, c.Rollover, c.Note, actor,
		}}); err != nil {
			return unavailable("write credit", err)
		}
		after := map[string]any{
			"tenant": c.Tenant, "amount": billing.Money{Amount: c.Amount, Currency: c.Currency}.String(), "priority": c.Priority, "expires": c.Expires, "rollover": c.Rollover, "note": c.Note,
		}
		if err := t.audit(actor, "credit.give", c.ID, nil, after); err != nil {
			return err
		}
		out, err = credit(ctx, t, c.ID)
		return err
	})
	if err != nil {
		return terms.Credit{}, err
	}
	return out, nil
}

// VoidCredit implements policystore.Store.
func (s *Store) VoidCredit(ctx context.Context, actor, id, reason string) (terms.Credit, error) {
	var out terms.Credit
	err := s.change(ctx, func(t *tx) error {
		var err error
		if out, err = credit(ctx, t, id); err != nil || !out.Voided.IsZero() {
			return err
		}
		if err := t.insert(ctx, "INSERT INTO credit_voids (credit, at_ms, reason, actor) VALUES ", "", [][]any{{id, t.s.now().UnixMilli(), reason, actor}}); err != nil {
			return unavailable("void credit", err)
		}
		if err := t.audit(actor, "credit.void", id, map[string]any{"tenant": out.Tenant, "left": out.Left}, map[string]any{"tenant": out.Tenant, "reason": reason}); err != nil {
			return err
		}
		out, err = credit(ctx, t, id)
		return err
	})
	if err != nil {
		return terms.Credit{}, err
	}
	return out, nil
}

// burn stores a statement's use of credits. It refuses if their remainders have changed since the statement was made.
func (t *tx) burn(ctx context.Context, c *terms.Closed, burns []billing.Burn) error {
	rows := make([][]any, len(burns))
	for i, b := range burns {
		was, err := credit(ctx, t, b.Credit)
		if err != nil {
			return err
		}
		if was.Tenant != c.Tenant || was.Left != b.Before {
			return fmt.Errorf("%w: %d are left of credit %s, and the statement was made of %d", policystore.ErrConflict, was.Left, b.Credit, b.Before)
		}
		rows[i] = []any{b.Credit, c.Number, b.Before, b.Paid, b.Lapsed, b.After}
	}
	return unavailable("write burns", t.insert(ctx, "INSERT INTO credit_burns (credit, number, left_before, paid, lapsed, left_after) VALUES ", "", rows))
}

// carry gives the credits that a statement makes. They count from the period's end, however late it is closed, so that
// the next statements use them.
func (t *tx) carry(ctx context.Context, c *terms.Closed, carried []billing.Carried) error {
	for _, made := range carried {
		note := fmt.Sprintf("carried from statement %d, of %s", c.Number, c.Period.Name)
		if err := t.insert(ctx, "INSERT INTO credits (id, tenant, currency, amount, priority, given_ms, expires, rollover, note, actor, carried) VALUES ", "", [][]any{{
			made.Credit, c.Tenant, made.Currency, made.Amount, terms.PriorityCarried, 1000 * c.Period.To, 0, -1, note, c.Actor, c.Number,
		}}); err != nil {
			return unavailable("write credit", err)
		}
		if err := t.audit(c.Actor, "credit.carry", made.Credit, nil, map[string]any{
			"tenant": c.Tenant, "amount": billing.Money{Amount: made.Amount, Currency: made.Currency}.String(), "note": note,
		}); err != nil {
			return err
		}
	}
	return nil
}
