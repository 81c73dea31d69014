package sqliteledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
)

// Fold is ledger.Store's. The holder of the write lock leads.
func (s *Store) Fold(ctx context.Context, now time.Time) (folded int, left bool, err error) {
	var block ledger.Block
	var keys []ledger.Key
	var touches []ledger.Touch
	var closed []ledger.Epoch
	err = s.write(ctx, func(ctx context.Context, w *writer) error {
		sealing := ledger.NewSealing(s.touches)
		ids, more, err := ask(w.query).Pending(ctx, sqlbooks.SQLite, s.halved, sealing)
		if err != nil {
			return err
		}
		corrections, err := ask(w.query).Corrections(ctx, ledger.MaxSealed+1)
		if err != nil || sealing.Reports()+len(corrections) == 0 {
			return err
		}
		if len(corrections) > ledger.MaxSealed {
			corrections, more = corrections[:ledger.MaxSealed], true
		}
		height, previous, err := ask(w.query).LastBlock(ctx)
		if err != nil {
			return err
		}
		var of ledger.Folded
		if block, of, err = sealing.Seal(height, previous, corrections); err != nil {
			return err
		}
		if err := writeBlock(ctx, w, &block, now); err != nil {
			return err
		}
		if keys, err = s.writeEntriesLocked(ctx, w, &block); err != nil {
			return err
		}
		if touches, err = s.writeTouchesLocked(ctx, w, of); err != nil {
			return err
		}
		if err := writeSettled(ctx, w, of.Settled); err != nil {
			return err
		}
		if len(ids) > 0 {
			var n int64
			n, err = w.exec(ctx, "DELETE FROM queue WHERE id <= ?", ids[len(ids)-1])
			if err == nil && n != int64(len(ids)) {
				err = fmt.Errorf("sqliteledger: %d reports left the queue, folded %d", n, len(ids))
			}
		}
		for i := range corrections {
			_, e := w.exec(ctx, "DELETE FROM corrections_queue WHERE number = ?", corrections[i].Number)
			err = errors.Join(err, e)
		}
		folded, left, closed = sealing.Reports()+len(corrections), more, of.Closed
		return err
	})
	s.writing.Lock()
	defer s.writing.Unlock()
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded): // it was too much, and would be again
		s.halved = min(s.halved+1, ledger.MaxHalved)
	case err == nil && !left:
		s.halved = leastHalved
	}
	if err != nil {
		return 0, false, err
	}
	for _, k := range keys {
		s.keys.Add(k)
	}
	for _, e := range closed {
		s.touches.Forget(e)
	}
	for _, t := range touches {
		s.touches.Add(t)
	}
	return folded, left, nil
}

func writeBlock(ctx context.Context, w *writer, b *ledger.Block, now time.Time) error {
	_, err := w.exec(ctx, sqlbooks.InsertBlock, sqlbooks.BlockArgs(b, now)...)
	return err
}

// writeEntriesLocked writes entries, their keys and what they add to roll-ups. It
// returns the keys.
func (s *Store) writeEntriesLocked(ctx context.Context, w *writer, b *ledger.Block) ([]ledger.Key, error) {
	keys := make([]ledger.Key, len(b.Entries))
	for i := range b.Entries {
		e := &b.Entries[i]
		keys[i] = ledger.KeyOf(e)
		if !s.keys.Has(keys[i]) {
			_, err := w.exec(ctx, `INSERT INTO keys (key, tenant, limit_name, meter, version, plan, attributes) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
				WHERE NOT EXISTS (SELECT 1 FROM keys WHERE key = ?1)`, keys[i][:], e.Tenant, e.Limit, e.Meter, e.Version, e.Plan, e.Attributes)
			if err != nil {
				return nil, err
			}
		}
		_, err := w.exec(ctx, "INSERT INTO entries (month, height, n, slot, key, admitted, overage, denied, correction) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
			ledger.Month(e.Slot).Unix(), b.Height, i, e.Slot, keys[i][:], e.Admitted, e.Overage, e.Denied, b.Correction(i))
		if err != nil {
			return nil, err
		}
	}
	for _, r := range ledger.Roll(b.Entries, keys) {
		_, err := w.exec(ctx, `INSERT INTO rollups (key, hour, admitted, overage, denied) VALUES (?1, ?2, ?3, ?4, ?5)
			`+sqlbooks.AddRollup("rollups"),
			r.Key[:], r.Hour, r.Sum.Admitted, r.Sum.Overage, r.Sum.Denied)
		if err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// writeTouchesLocked notes which epochs touched which tenants, and forgets those of
// epochs that closed. It returns the notes.
func (s *Store) writeTouchesLocked(ctx context.Context, w *writer, of ledger.Folded) ([]ledger.Touch, error) {
	for _, e := range of.Closed {
		if _, err := w.exec(ctx, "DELETE FROM touched WHERE agent = ? AND epoch = ?", e.Agent, e.Epoch); err != nil {
			return nil, err
		}
	}
	var notes []ledger.Touch
	for t := range of.Touched {
		_, err := w.exec(ctx, "INSERT INTO touched (tenant, agent, epoch) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
			t.Tenant(), t.Epoch().Agent, t.Epoch().Epoch)
		if err != nil {
			return nil, err
		}
		notes = append(notes, t)
	}
	return notes, nil
}

// writeSettled adds folded units to the accounts of their epochs.
func writeSettled(ctx context.Context, w *writer, settled []ledger.SettledUnits) error {
	for _, s := range settled {
		_, err := w.exec(ctx, `INSERT INTO settled (agent, epoch, limit_name, units) VALUES (?, ?, ?, ?)
			ON CONFLICT (agent, epoch, limit_name) DO UPDATE SET units = units + excluded.units`,
			s.ID.Epoch.Agent, s.ID.Epoch.Epoch, s.ID.Limit, s.Units)
		if err != nil {
			return err
		}
	}
	return nil
}
