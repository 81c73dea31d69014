package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// DeclareLost is ledger.Books'.
func (b *Books) DeclareLost(ctx context.Context, actor, reason string, e ledger.Epoch) (state ledger.AgentState, err error) {
	if err := ledger.CheckReason(reason); err != nil {
		return state, err
	}
	err = b.change(ctx, actor, func(ch *change) error {
		// The row is locked by being written: a report that is being settled comes before
		// or after, and in both cases it is seen.
		var f ledger.Frontier
		err := scanFrontier(&f, ch.QueryRowContext(ctx, "UPDATE frontier SET seq = seq WHERE agent = $1 AND epoch = $2 RETURNING "+frontierColumns,
			e.Agent, e.Epoch).Scan)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%w: agent %s has no epoch %d", ledger.ErrNotFound, e.Agent, e.Epoch)
		}
		if err != nil {
			return err
		}
		switch f.State {
		case ledger.StateLost, ledger.StateGone:
		case ledger.StateOpen, ledger.StateFenced:
			err = ch.lose(ctx, &f, reason)
		default:
			return fmt.Errorf("%w: epoch %s is %s", ledger.ErrTaken, e, f.State)
		}
		state = f.Agent(time.UnixMilli(ch.now))
		return err
	})
	return state, err
}

// lose ends the weight of an open or fenced epoch, whose row is locked.
func (c *change) lose(ctx context.Context, f *ledger.Frontier, reason string) error {
	before := map[string]any{"state": f.State, "why": f.Reason}
	if f.State == ledger.StateOpen {
		f.State, f.Reason = ledger.StateLost, reason
	} else {
		f.State = ledger.StateGone // why it is fenced stays
	}
	if _, err := c.ExecContext(ctx, "UPDATE frontier SET state = $1, reason = $2 WHERE agent = $3 AND epoch = $4",
		f.State, f.Reason, f.Epoch.Agent, f.Epoch.Epoch); err != nil {
		return err
	}
	return c.audit(ctx, "agent.lost", f.Epoch.String(), before, map[string]any{"state": f.State, "reason": reason, "reports": f.Seq, "units": f.Total, "through_ms": f.Through})
}

// lostPage is how many epochs one transaction loses: while it lasts, no policy changes, and their agents' reports wait.
const lostPage = 100

// keyless are the epochs that hold usage back and whose key was revoked. An agent whose key expired may go on
// under the next when it starts again, and report what is in its journal. So an expired key counts like any
// silence.
const keyless = `SELECT f.agent, f.epoch, k.id, k.revoked_ms FROM frontier f JOIN access_keys k ON k.id = f.key_id
	WHERE f.state <> 'closed' AND f.state IN ('open', 'fenced') AND f.seen_ms > $1
	AND k.revoked_ms BETWEEN 1 AND $2 ORDER BY f.agent, f.epoch LIMIT $3`

// LoseKeys is ledger.Books'. Keys are read from the policy store's table: its transactions are the books' too.
func (b *Books) LoseKeys(ctx context.Context, actor string, after time.Duration) (lost int, err error) {
	for {
		n, err := b.losePage(ctx, actor, after)
		if lost += n; err != nil || n < lostPage {
			return lost, err
		}
	}
}

func (b *Books) losePage(ctx context.Context, actor string, after time.Duration) (lost int, err error) {
	_, now, err := b.room(ctx)
	if err != nil {
		return 0, err
	}
	type found struct {
		epoch   ledger.Epoch
		key     string
		revoked int64
	}
	var all []found
	read := func(tx *sql.Tx) error {
		all = nil
		rows, err := tx.QueryContext(ctx, keyless, now.Add(-ledger.SilentAfter).UnixMilli(), now.Add(-after).UnixMilli(), lostPage)
		return each(rows, err, func(rows *sql.Rows) error {
			var f found
			err := rows.Scan(&f.epoch.Agent, &f.epoch.Epoch, &f.key, &f.revoked)
			all = append(all, f)
			return err
		})
	}
	if err := b.read(ctx, read); err != nil || len(all) == 0 {
		return 0, err // as nearly always, without the row that all changes wait for
	}
	err = b.change(ctx, actor, func(ch *change) error {
		lost = 0
		if err := read(ch.Tx); err != nil {
			return err
		}
		for _, k := range all {
			// It may have reported under another key meanwhile.
			var f ledger.Frontier
			err := scanFrontier(&f, ch.QueryRowContext(ctx, `UPDATE frontier SET seq = seq
				WHERE agent = $1 AND epoch = $2 AND key_id = $3 AND state IN ('open', 'fenced') RETURNING `+frontierColumns,
				k.epoch.Agent, k.epoch.Epoch, k.key).Scan)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			if err := ch.lose(ctx, &f, fmt.Sprintf("its key %s was revoked at %s", k.key, stamp(k.revoked))); err != nil {
				return err
			}
			lost++
		}
		return nil
	})
	return lost, err
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
