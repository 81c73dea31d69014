package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Backlog is ledger.Books'.
func (b *Books) Backlog(ctx context.Context) (l ledger.Backlog, err error) {
	err = b.read(ctx, func(tx *sql.Tx) error {
		// What was resolved is counted off: a row of quarantine is resolved once.
		err := tx.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM queue), (SELECT coalesce(sum(row_count), 0) FROM queue),
			(SELECT count(*) FROM corrections_queue), (SELECT count(*) FROM quarantine) - (SELECT count(*) FROM resolutions)`).
			Scan(&l.Reports, &l.Rows, &l.Corrections, &l.Quarantined)
		if err != nil {
			return err
		}
		var stored int64
		err = tx.QueryRowContext(ctx, `SELECT r.stored_ms FROM (SELECT agent, epoch, seq FROM queue ORDER BY id LIMIT 1) AS q
			JOIN reports r ON r.agent = q.agent AND r.epoch = q.epoch AND r.seq = q.seq`).Scan(&stored)
		switch {
		case err == nil:
			l.Oldest = time.UnixMilli(stored).UTC()
		case errors.Is(err, sql.ErrNoRows):
			err = nil
		}
		return err
	})
	return l, err
}
