package sqliteledger

import (
	"context"

	"github.com/f4ee788f/quota/internal/ledger"
)

// Hold is ledger.Store's.
func (s *Store) Hold(ctx context.Context, h ledger.Hold) error {
	now := s.now().UnixMilli()
	return s.write(ctx, func(ctx context.Context, w *writer) error {
		_, err := w.exec(ctx, `INSERT INTO frontier (agent, epoch, seq, total, through_ms, seen_ms, digest, state, reason)
			VALUES (?, ?, 0, 0, 0, ?, x'', 'open', '')
			ON CONFLICT (agent, epoch) DO UPDATE SET seen_ms = excluded.seen_ms WHERE frontier.seq = 0 AND frontier.seen_ms = 0`,
			h.Epoch.Agent, h.Epoch.Epoch, now)
		for _, tenant := range h.Sorted() {
			if err != nil {
				break
			}
			_, err = w.exec(ctx, `INSERT INTO touched (tenant, agent, epoch)
				SELECT ?, agent, epoch FROM frontier WHERE agent = ? AND epoch >= ? AND state <> 'closed' ON CONFLICT DO NOTHING`,
				tenant, h.Epoch.Agent, h.Epoch.Epoch)
		}
		return err
	})
}
