package pgledger

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Hold is ledger.Store's.
func (s *Store) Hold(ctx context.Context, holds ...ledger.Hold) error {
	_, now, err := s.room(ctx)
	if err != nil {
		return err
	}
	holds = slices.Clone(holds)
	ledger.SortHolds(holds) // who notes the same epochs at the same time never waits in a circle
	return s.write(ctx, func(tx pgx.Tx) error {
		var batch pgx.Batch
		for _, h := range holds {
			// An epoch that comes back under another key has its weight again before it can have usage. The row of
			// any other is only kept from closing meanwhile: another server may note for it, too.
			batch.Queue(`INSERT INTO frontier AS f (agent, epoch, seq, total, through_ms, seen_ms, digest, state, reason, key_id)
				SELECT $1, $2, 0, 0, 0, $3, '', 'open', '', $4
				WHERE NOT EXISTS (SELECT FROM frontier WHERE agent = $1 AND epoch = $2 AND
					NOT (seq = 0 AND seen_ms = 0 OR key_id <> $4 AND state <> 'closed'))
				ON CONFLICT (agent, epoch) DO UPDATE SET key_id = excluded.key_id,
					seen_ms = CASE WHEN f.seq = 0 AND f.seen_ms = 0 THEN excluded.seen_ms ELSE f.seen_ms END,
					state = CASE f.state WHEN 'lost' THEN 'open' ELSE f.state END, reason = CASE f.state WHEN 'lost' THEN '' ELSE f.reason END
				WHERE f.seq = 0 AND f.seen_ms = 0 OR f.key_id <> excluded.key_id AND f.state <> 'closed'`,
				h.Epoch.Agent, h.Epoch.Epoch, now.UnixMilli(), h.Key)
			batch.Queue(`INSERT INTO touched (tenant, agent, epoch)
				SELECT t.tenant, f.agent, f.epoch FROM unnest($3::text[]) AS t (tenant), frontier f
				WHERE f.agent = $1 AND f.epoch >= $2 AND f.state <> 'closed'
				ORDER BY t.tenant COLLATE "C", f.epoch FOR SHARE OF f ON CONFLICT DO NOTHING`, h.Epoch.Agent, h.Epoch.Epoch, h.Sorted())
		}
		return tx.SendBatch(ctx, &batch).Close()
	})
}
