package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Rebuild is ledger.Books': a month at a time, each a transaction that no fold is in
// the middle of.
func (b *Books) Rebuild(ctx context.Context, actor string, progress func(ledger.Progress)) (int64, error) {
	_, now, err := b.room(ctx)
	if err := errors.Join(err, checkActor(actor)); err != nil {
		return 0, err
	}
	var months []int64
	if err := b.read(ctx, func(tx *sql.Tx) (err error) {
		months, err = b.months(ctx, tx)
		return err
	}); err != nil {
		return 0, err
	}
	var wrong int64
	for i := range len(months) - 1 {
		err := b.write(ctx, func(tx *sql.Tx) error {
			n, err := b.rebuild(ctx, tx, months[i], months[i+1])
			wrong += n
			if n == 0 || err != nil {
				return err
			}
			// Only now: a month takes long, and changes of the policy would wait for the row of heads.
			c := &change{Tx: tx, d: b.d, actor: actor, now: now.UnixMilli()}
			month := time.Unix(months[i], 0).UTC().Format("2006-01")
			if err := c.begin(ctx); err != nil {
				return err
			}
			if err := c.audit(ctx, "ledger.rebuild", month, map[string]int64{"wrong": n}, map[string]int64{"wrong": 0}); err != nil {
				return err
			}
			return c.end(ctx)
		})
		if err != nil {
			return wrong, err
		}
		if progress != nil {
			progress(ledger.Progress{Stage: "roll-ups", Done: int64(i + 1), Total: int64(len(months) - 1)})
		}
	}
	return wrong, nil
}

// rebuild does one month. In Postgres the owner's function does it: quota_app may not
// delete a roll-up.
func (b *Books) rebuild(ctx context.Context, tx *sql.Tx, from, to int64) (wrong int64, err error) {
	if b.engine == Postgres {
		err = tx.QueryRowContext(ctx, "SELECT rebuild_rollups($1, $2)", from, to).Scan(&wrong)
		return wrong, err
	}
	strays, err := tx.ExecContext(ctx, `DELETE FROM rollups WHERE hour >= $1 AND hour < $2
		AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.key = rollups.key AND e.slot >= rollups.hour AND e.slot < rollups.hour + 3600)`, from, to)
	if err != nil {
		return 0, err
	}
	if wrong, err = strays.RowsAffected(); err != nil {
		return 0, err
	}
	// SQLite adds up without overflow only in halves, which Go puts together.
	var faults []ledger.RollupFault
	s := snapshot{Books: b, tx: tx}
	if err := s.unrolled(ctx, from, to, func(f *ledger.RollupFault) error { faults = append(faults, *f); return nil }); err != nil {
		return 0, err
	}
	for _, f := range faults {
		_, e := tx.ExecContext(ctx, `INSERT INTO rollups (key, hour, admitted, overage, denied) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (key, hour) DO UPDATE SET admitted = excluded.admitted, overage = excluded.overage, denied = excluded.denied`,
			f.Key[:], f.Hour, f.Sum.Admitted, f.Sum.Overage, f.Sum.Denied)
		err = errors.Join(err, e)
	}
	return wrong + int64(len(faults)), err
}
