package sqlbooks

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// maxActor is how long a name in the audit log may be, as for changes of the policy.
const maxActor = 256

// change is a transaction that changes facts and writes the audit log. It holds the row of heads, as every
// change of the policy does. So changes come one after another, and none alters what another has read.
type change struct {
	*sql.Tx
	d      *dialect
	actor  string
	now    int64 // Unix milliseconds
	audits int64
	was    int64
}

func checkActor(actor string) error {
	if actor == "" || len(actor) > maxActor {
		return fmt.Errorf("%w: it is made by someone, whose name has 1 to %d bytes", ledger.ErrCorrection, maxActor)
	}
	return nil
}

func (b *Books) change(ctx context.Context, actor string, do func(c *change) error) error {
	if err := checkActor(actor); err != nil {
		return err
	}
	_, now, err := b.room(ctx)
	if err != nil {
		return err
	}
	return b.write(ctx, func(tx *sql.Tx) error {
		c := &change{Tx: tx, d: b.d, actor: actor, now: now.UnixMilli()}
		if err := c.begin(ctx); err != nil {
			return err
		}
		if err := do(c); err != nil {
			return err
		}
		return c.end(ctx)
	})
}

// begin takes the row of heads: writing before reading takes the lock in both engines.
func (c *change) begin(ctx context.Context) error {
	err := c.QueryRowContext(ctx, "UPDATE policy_heads SET id = id WHERE id = 1 RETURNING audit").Scan(&c.audits)
	c.was = c.audits
	return err
}

// end counts what was audited.
func (c *change) end(ctx context.Context) error {
	if c.audits == c.was {
		return nil
	}
	_, err := c.ExecContext(ctx, "UPDATE policy_heads SET audit = $1 WHERE id = 1", c.audits)
	return err
}

// audit writes a row of the audit log: before and after, as JSON.
func (c *change) audit(ctx context.Context, action, object string, before, after any) error {
	var texts [2]string
	for i, of := range []any{before, after} {
		text, err := json.Marshal(of)
		if err != nil {
			return fmt.Errorf("audit of %s: %w", action, err)
		}
		texts[i] = string(text)
	}
	chain := []byte{} // of the row before
	if err := c.QueryRowContext(ctx, "SELECT chain FROM audit_log WHERE number = $1", c.audits).Scan(&chain); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	c.audits++
	r := ledger.AuditRow{Number: c.audits, At: c.now, Actor: c.actor, Action: action, Object: object, Before: texts[0], After: texts[1]}
	_, err := c.ExecContext(ctx, "INSERT INTO audit_log (number, at_ms, actor, action, object, before, after, chain) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
		r.Number, r.At, r.Actor, r.Action, r.Object, r.Before, r.After, r.Next(chain))
	return err
}
