package pgledger

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/f4ee788f/quota/internal/ledger"
)

// Hold is ledger.Store's.
func (s *Store) Hold(ctx context.Context, h ledger.Hold) error {
	_, now, err := s.room(ctx)
	if err != nil {
		return err
	}
	return s.write(ctx, func(tx pgx.Tx) error {
		var batch pgx.Batch
		batch.Queue(`INSERT INTO frontier AS f (agent, epoch, seq, total, through_ms, seen_ms, digest, state, reason)
			VALUES ($1, $2, 0, 0, 0, $3, '', 'open', '')
			ON CONFLICT (agent, epoch) DO UPDATE SET seen_ms = excluded.seen_ms WHERE f.seq = 0 AND f.seen_ms = 0`,
			h.Epoch.Agent, h.Epoch.Epoch, now.UnixMilli())
		batch.Queue(`INSERT INTO touched (tenant, agent, epoch)
			SELECT t.tenant, f.agent, f.epoch FROM unnest($3::text[]) AS t (tenant), frontier f
			WHERE f.agent = $1 AND f.epoch >= $2 AND f.state <> 'closed'
			ORDER BY t.tenant COLLATE "C", f.epoch ON CONFLICT DO NOTHING`, h.Epoch.Agent, h.Epoch.Epoch, h.Sorted())
		return tx.SendBatch(ctx, &batch).Close()
	})
}
