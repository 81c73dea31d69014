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

// commit is one transaction of intake. Rows are judged before it begins: what judges
// them may read this file, or write to it. Where months were retired since, they are
// judged again.
func (s *Store) commit(ctx context.Context, reports []ledger.Report) (receipts []ledger.Receipt, err error) {
	for range 3 {
		if receipts, err = s.commitOnce(ctx, reports); !errors.Is(err, errRetired) {
			break
		}
	}
	return receipts, err
}

// errRetired means that the window is not the ledger's any more.
var errRetired = fmt.Errorf("%w: months were retired just now", ledger.ErrUnavailable)

// holdMonthsLocked fails where months that the window has were retired. No others are
// until the transaction ends.
func (s *Store) holdMonthsLocked(ctx context.Context, w *writer, window ledger.Window) error {
	p, err := w.prepare(ctx, "SELECT coalesce(min(month), 0) FROM months")
	if err != nil {
		return err
	}
	var oldest int64
	if err := p.QueryRowContext(ctx).Scan(&oldest); err != nil || !window.Behind(oldest) {
		return err
	}
	if s.window, err = readWindow(ctx, w.conn); err != nil {
		return err
	}
	return errRetired
}

func (s *Store) commitOnce(ctx context.Context, reports []ledger.Report) ([]ledger.Receipt, error) {
	now := s.now()
	window, err := s.room(ctx, now)
	if err != nil {
		return nil, err
	}
	in := ledger.NewIntake(reports, ledger.Rules{Now: now, Window: window, Slot: s.options.Slot, Accept: s.options.Accept})
	var receipts []ledger.Receipt
	err = s.write(ctx, func(ctx context.Context, w *writer) error {
		if err := s.holdMonthsLocked(ctx, w, window); err != nil {
			return err
		}
		frontiers, err := readFrontiers(ctx, w, in)
		if err != nil {
			return err
		}
		stored, err := readDigests(ctx, w, in.Behind(frontiers))
		if err != nil {
			return err
		}
		out := in.Decide(frontiers, stored)
		receipts = out.Receipts
		return writeOutcome(ctx, w, &out, now)
	})
	if err != nil {
		return nil, err
	}
	return receipts, nil
}

type scanner interface{ Scan(dest ...any) error }

func readFrontiers(ctx context.Context, w *writer, in *ledger.Intake) (map[ledger.Epoch]ledger.Frontier, error) {
	all, begin := in.Epochs()
	for _, e := range begin {
		_, err := w.exec(ctx, `INSERT INTO frontier (agent, epoch, seq, total, through_ms, seen_ms, digest, state, reason)
			VALUES (?, ?, 0, 0, 0, 0, x'', 'open', '') ON CONFLICT DO NOTHING`, e.Agent, e.Epoch)
		if err != nil {
			return nil, err
		}
	}
	frontiers := make(map[ledger.Epoch]ledger.Frontier, len(all))
	p, err := w.prepare(ctx, "SELECT "+sqlbooks.FrontierColumns+" FROM frontier WHERE agent = ? AND epoch = ?")
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		f, err := sqlbooks.ScanFrontier(p.QueryRowContext(ctx, e.Agent, e.Epoch).Scan)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		frontiers[e] = f
	}
	return frontiers, nil
}

func readDigests(ctx context.Context, w *writer, ids []ledger.ReportID) (map[ledger.ReportID][32]byte, error) {
	stored := make(map[ledger.ReportID][32]byte, len(ids))
	p, err := w.prepare(ctx, `SELECT digest FROM reports WHERE agent = ?1 AND epoch = ?2 AND seq = ?3
		UNION ALL SELECT digest FROM archived_reports WHERE agent = ?1 AND epoch = ?2 AND seq = ?3`)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		var digest []byte
		err := p.QueryRowContext(ctx, id.Epoch.Agent, id.Epoch.Epoch, id.Seq).Scan(&digest)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		stored[id] = [32]byte(digest)
	}
	return stored, nil
}

func writeOutcome(ctx context.Context, w *writer, out *ledger.Outcome, now time.Time) error {
	for _, m := range out.Moves {
		n, err := w.exec(ctx, `UPDATE frontier SET seq = ?, total = ?, through_ms = ?, seen_ms = ?, digest = ?, state = ?, reason = ?,
			next_epoch = ?, ends_at = ?, key_id = ? WHERE agent = ? AND epoch = ? AND seq = ? AND total = ?`,
			m.To.Seq, m.To.Total, m.To.Through, m.To.Seen, m.To.Digest[:], m.To.State, m.To.Reason, m.To.Next, m.To.Ends, m.To.Key,
			m.From.Epoch.Agent, m.From.Epoch.Epoch, m.From.Seq, m.From.Total)
		if err != nil {
			return err
		}
		if n != 1 {
			return fmt.Errorf("%w: the frontier of %s moved", ledger.ErrUnavailable, m.From.Epoch.Agent)
		}
	}
	for _, r := range out.Reports {
		_, err := w.exec(ctx, `INSERT INTO reports (month, agent, epoch, seq, total_before, total_after, through_ms, closed,
			row_count, digest, payload, held, stored_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			r.Month.Unix(), r.Report.Agent, r.Report.Epoch, r.Report.Seq, r.Report.Before, r.Report.After, r.Report.Through,
			r.Report.Closed, r.Rows, r.Report.Digest[:], notNil(r.Report.Payload), notNil(r.Held), now.UnixMilli())
		if err != nil {
			return err
		}
		if r.Rows == 0 && !r.Report.Closed {
			continue // a heartbeat has nothing to fold
		}
		_, err = w.exec(ctx, "INSERT INTO queue (agent, epoch, seq, row_count, size) VALUES (?, ?, ?, ?, ?)",
			r.Report.Agent, r.Report.Epoch, r.Report.Seq, r.Rows, r.Size)
		if err != nil {
			return err
		}
	}
	for _, q := range out.Kept {
		_, err := w.exec(ctx, `INSERT INTO quarantine (agent, epoch, seq, row_number, reason, body, tenant, slot, units, stored_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			q.ID.Epoch.Agent, q.ID.Epoch.Epoch, q.ID.Seq, q.Row, q.Reason, notNil(q.Body), q.Note.Tenant, q.Note.Slot, q.Note.Units, now.UnixMilli())
		if err != nil {
			return err
		}
	}
	return nil
}

// notNil keeps an empty value from becoming NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
