package sqliteledger

import (
	"context"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Hold is ledger.Store's.
func (s *Store) Hold(ctx context.Context, holds ...ledger.Hold) error {
	now := s.now().UnixMilli()
	return s.write(ctx, func(ctx context.Context, w *writer) error {
		for _, h := range holds {
			if err := hold(ctx, w, &h, now); err != nil {
				return err
			}
		}
		return nil
	})
}

func hold(ctx context.Context, w *writer, h *ledger.Hold, now int64) error {
	// An epoch that comes back under another key has its weight again before it can have usage.
	_, err := w.exec(ctx, `INSERT INTO frontier AS f (agent, epoch, seq, total, through_ms, seen_ms, digest, state, reason, key_id)
		VALUES (?, ?, 0, 0, 0, ?, x'', 'open', '', ?)
		ON CONFLICT (agent, epoch) DO UPDATE SET key_id = excluded.key_id,
			seen_ms = CASE WHEN f.seq = 0 AND f.seen_ms = 0 THEN excluded.seen_ms ELSE f.seen_ms END,
			state = CASE f.state WHEN 'lost' THEN 'open' ELSE f.state END, reason = CASE f.state WHEN 'lost' THEN '' ELSE f.reason END
		WHERE f.seq = 0 AND f.seen_ms = 0 OR f.key_id <> excluded.key_id AND f.state <> 'closed'`,
		h.Epoch.Agent, h.Epoch.Epoch, now, h.Key)
	for _, tenant := range h.Sorted() {
		if err != nil {
			break
		}
		_, err = w.exec(ctx, `INSERT INTO touched (tenant, agent, epoch)
			SELECT ?, agent, epoch FROM frontier WHERE agent = ? AND epoch >= ? AND state <> 'closed' ON CONFLICT DO NOTHING`,
			tenant, h.Epoch.Agent, h.Epoch.Epoch)
	}
	return err
}
