package sqliteledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
)

// Fold is ledger.Store's. Whoever has the write lock leads.
func (s *Store) Fold(ctx context.Context, now time.Time) (folded int, left bool, err error) {
	var block ledger.Block
	var keys []ledger.Key
	var touches []ledger.Touch
	var closed []ledger.Epoch
	err = s.write(ctx, func(ctx context.Context, w *writer) error {
		sealing := ledger.NewSealing(s.touches)
		last, more, err := readPending(ctx, w, s.halved, sealing)
		if err != nil {
			return err
		}
		corrections, err := readCorrections(ctx, w.query, ledger.MaxSealed+1)
		if err != nil || sealing.Reports()+len(corrections) == 0 {
			return err
		}
		if len(corrections) > ledger.MaxSealed {
			corrections, more = corrections[:ledger.MaxSealed], true
		}
		height, previous, err := lastBlock(ctx, w)
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
		n, err := w.exec(ctx, "DELETE FROM queue WHERE id <= ?", last)
		if err == nil && n != int64(sealing.Reports()) {
			err = fmt.Errorf("sqliteledger: %d reports left the queue, folded %d", n, sealing.Reports())
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

// readPending adds the oldest reports of the queue to a block, as many as it takes, its
// bounds halved so many times, and returns the last one's id, and whether there are more.
func readPending(ctx context.Context, w *writer, halved int, into *ledger.Sealing) (last int64, more bool, err error) {
	var queue []ledger.Waiting
	rows, err := w.query(ctx, "SELECT id, row_count, size FROM queue ORDER BY id LIMIT ?", ledger.MaxBlockReports+1)
	err = each(rows, err, func(row scanner) error {
		var q ledger.Waiting
		err := row.Scan(&q.ID, &q.Rows, &q.Size)
		queue = append(queue, q)
		return err
	})
	if err != nil {
		return 0, false, err
	}
	for _, page := range ledger.Pages(queue, halved) {
		if into.Full(halved) {
			break
		}
		last = page[len(page)-1]
		rows, err := w.query(ctx, pendingQuery+" WHERE q.id BETWEEN ? AND ? ORDER BY q.id", page[0], last)
		err = each(rows, err, func(row scanner) error {
			p, err := scanPending(row)
			if err != nil {
				return err
			}
			return into.Add(&p)
		})
		if err != nil {
			return 0, false, err
		}
	}
	return last, into.Reports() < len(queue), nil
}

const pendingQuery = `SELECT r.agent, r.epoch, r.seq, r.closed, r.payload, r.held
	FROM queue q JOIN reports r ON r.agent = q.agent AND r.epoch = q.epoch AND r.seq = q.seq`

func scanPending(row scanner) (p ledger.Pending, err error) {
	err = row.Scan(&p.ID.Epoch.Agent, &p.ID.Epoch.Epoch, &p.ID.Seq, &p.Closed, &p.Payload, &p.Held)
	return p, err
}

// readCorrections returns the oldest corrections that are not folded yet; n 0 for all.
func readCorrections(ctx context.Context, query func(context.Context, string, ...any) (*sql.Rows, error), n int) ([]ledger.Correction, error) {
	if n == 0 {
		n = -1 // no limit, to SQLite
	}
	var corrections []ledger.Correction
	rows, err := query(ctx, `SELECT c.number, c.negative, c.payload, c.digest
		FROM corrections_queue q JOIN corrections c ON c.number = q.number ORDER BY c.number LIMIT ?`, n)
	err = each(rows, err, func(row scanner) error {
		var c ledger.Correction
		var digest []byte
		err := row.Scan(&c.Number, &c.Negative, &c.Payload, &digest)
		copy(c.Digest[:], digest)
		corrections = append(corrections, c)
		return err
	})
	return corrections, err
}

func lastBlock(ctx context.Context, w *writer) (height int64, hash [32]byte, err error) {
	p, err := w.prepare(ctx, "SELECT height, hash FROM blocks ORDER BY height DESC LIMIT 1")
	if err != nil {
		return 0, hash, err
	}
	var b []byte
	err = p.QueryRowContext(ctx).Scan(&height, &b)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, hash, nil
	}
	copy(hash[:], b)
	return height, hash, err
}

func writeBlock(ctx context.Context, w *writer, b *ledger.Block, now time.Time) error {
	_, err := w.exec(ctx, "INSERT INTO blocks (height, previous, hash, reports, entries, sources, corrections, folded_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		b.Height, b.Previous[:], b.Hash[:], b.Reports, len(b.Entries), notNil(b.Sources), notNil(b.Corrections), now.UnixMilli())
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
			ON CONFLICT (key, hour) DO UPDATE SET admitted = `+sqlbooks.Added("rollups", "admitted")+`, overage = `+sqlbooks.Added("rollups", "overage")+`, denied = `+sqlbooks.Added("rollups", "denied"),
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

// writeSettled adds what was folded to the accounts of its epochs.
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
