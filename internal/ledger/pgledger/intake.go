package pgledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
)

// commit is one transaction of intake, in two round trips and the COMMIT: lock the
// frontiers, write the outcome. A third reads digests where reports come again. Where
// months were retired since the rows were judged, they are judged again.
func (s *Store) commit(ctx context.Context, reports []ledger.Report) (receipts []ledger.Receipt, err error) {
	for range 3 {
		if receipts, err = s.commitOnce(ctx, reports); !errors.Is(err, errRetired) {
			break
		}
		s.mu.Lock()
		s.read = time.Time{}
		s.mu.Unlock()
	}
	return receipts, err
}

// errRetired means that the window is not the ledger's any more.
var errRetired = fmt.Errorf("%w: months were retired just now", ledger.ErrUnavailable)

func (s *Store) commitOnce(ctx context.Context, reports []ledger.Report) ([]ledger.Receipt, error) {
	window, now, err := s.room(ctx)
	if err != nil {
		return nil, err
	}
	in := ledger.NewIntake(reports, ledger.Rules{Now: now, Window: window, Slot: s.options.Slot, Accept: s.options.Accept})
	var receipts []ledger.Receipt
	err = s.write(ctx, func(tx pgx.Tx) error {
		frontiers, oldest, err := lockFrontiers(ctx, tx, in)
		if err != nil {
			return err
		}
		if window.Behind(oldest) {
			return errRetired
		}
		stored, err := readDigests(ctx, tx, in.Behind(frontiers))
		if err != nil {
			return err
		}
		out := in.Decide(frontiers, stored)
		receipts = out.Receipts
		return writeOutcome(ctx, tx, &out, now)
	})
	if err != nil {
		return nil, err
	}
	return receipts, nil
}

func scanFrontier(row pgx.CollectableRow) (ledger.Frontier, error) {
	return sqlbooks.ScanFrontier(row.Scan)
}

// holdMonths keeps months from being retired until the transaction ends. Retention waits for transactions that
// hold it; later ones read which months are left.
const holdMonths = "SELECT pg_advisory_xact_lock_shared(hashtextextended('quota.months.' || current_schema(), 0))"

// lockFrontiers makes missing rows and locks all, both in the order of the epochs,
// so that servers never wait for one another in a circle. It also keeps the months
// that there are, and returns where the oldest begins, in Unix seconds.
func lockFrontiers(ctx context.Context, tx pgx.Tx, in *ledger.Intake) (_ map[ledger.Epoch]ledger.Frontier, oldest int64, err error) {
	all, begin := in.Epochs()
	if len(all) == 0 {
		return nil, 0, nil
	}
	var batch pgx.Batch
	batch.Queue(holdMonths)
	batch.Queue("SELECT coalesce(extract(epoch FROM min(month))::bigint, 0) FROM months").QueryRow(func(row pgx.Row) error { return row.Scan(&oldest) })
	if len(begin) > 0 {
		agents, epochs := columns(begin)
		batch.Queue(`INSERT INTO frontier (agent, epoch, seq, total, through_ms, seen_ms, digest, state, reason)
			SELECT agent, epoch, 0, 0, 0, 0, '', 'open', '' FROM unnest($1::text[], $2::bigint[]) AS b (agent, epoch)
			ORDER BY agent COLLATE "C", epoch ON CONFLICT DO NOTHING`, agents, epochs)
	}
	agents, epochs := columns(all)
	frontiers := make(map[ledger.Epoch]ledger.Frontier, len(all))
	batch.Queue(`SELECT `+sqlbooks.FrontierColumns+` FROM frontier
		WHERE (agent, epoch) IN (SELECT agent, epoch FROM unnest($1::text[], $2::bigint[]) AS b (agent, epoch))
		ORDER BY agent, epoch FOR UPDATE`, agents, epochs).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scanFrontier)
		for _, f := range found {
			frontiers[f.Epoch] = f
		}
		return err
	})
	err = tx.SendBatch(ctx, &batch).Close()
	return frontiers, oldest, err
}

func columns(epochs []ledger.Epoch) (agents []string, numbers []int64) {
	for _, e := range epochs {
		agents = append(agents, e.Agent)
		numbers = append(numbers, e.Epoch)
	}
	return agents, numbers
}

func readDigests(ctx context.Context, tx pgx.Tx, ids []ledger.ReportID) (map[ledger.ReportID][32]byte, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var agents []string
	var epochs, seqs []int64
	for _, id := range ids {
		agents = append(agents, id.Epoch.Agent)
		epochs = append(epochs, id.Epoch.Epoch)
		seqs = append(seqs, id.Seq)
	}
	rows, err := tx.Query(ctx, `SELECT r.agent, r.epoch, r.seq, r.digest
		FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS b (agent, epoch, seq)
		JOIN reports r ON r.agent = b.agent AND r.epoch = b.epoch AND r.seq = b.seq
		UNION ALL
		SELECT r.agent, r.epoch, r.seq, r.digest
		FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS b (agent, epoch, seq)
		JOIN archived_reports r ON r.agent = b.agent AND r.epoch = b.epoch AND r.seq = b.seq`, agents, epochs, seqs)
	if err != nil {
		return nil, err
	}
	stored := make(map[ledger.ReportID][32]byte, len(ids))
	var id ledger.ReportID
	var digest []byte
	_, err = pgx.ForEachRow(rows, []any{&id.Epoch.Agent, &id.Epoch.Epoch, &id.Seq, &digest}, func() error {
		stored[id] = [32]byte(digest)
		return nil
	})
	return stored, err
}

func writeOutcome(ctx context.Context, tx pgx.Tx, out *ledger.Outcome, now time.Time) error {
	var batch pgx.Batch
	if len(out.Moves) > 0 {
		queueMoves(&batch, out.Moves)
	}
	if len(out.Reports) > 0 {
		queueReports(&batch, out.Reports, now)
	}
	if len(out.Kept) > 0 {
		queueKept(&batch, out.Kept, now)
	}
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, &batch).Close()
}

// queueMoves moves frontiers by compare-and-set. They are locked, so it cannot miss;
// if it did, nothing would be stored.
func queueMoves(batch *pgx.Batch, moves []ledger.Move) {
	n := len(moves)
	agents, states, reasons, keys := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	numbers := make([][]int64, 9) // epoch, from seq, from total, seq, total, through, seen, next, ends
	for i := range numbers {
		numbers[i] = make([]int64, n)
	}
	digests := make([][]byte, n)
	for i := range moves {
		from, to := &moves[i].From, &moves[i].To
		agents[i], states[i], reasons[i], keys[i], digests[i] = to.Epoch.Agent, to.State, to.Reason, to.Key, to.Digest[:]
		for c, v := range [...]int64{to.Epoch.Epoch, from.Seq, from.Total, to.Seq, to.Total, to.Through, to.Seen, to.Next, to.Ends} {
			numbers[c][i] = v
		}
	}
	batch.Queue(`UPDATE frontier f SET seq = m.seq, total = m.total, through_ms = m.through_ms, seen_ms = m.seen_ms,
			digest = m.digest, state = m.state, reason = m.reason, next_epoch = m.next_epoch, ends_at = m.ends_at, key_id = m.key_id
		FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
			$9::bytea[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::text[])
			AS m (agent, epoch, from_seq, from_total, seq, total, through_ms, seen_ms, digest, state, reason, next_epoch, ends_at, key_id)
		WHERE f.agent = m.agent AND f.epoch = m.epoch AND f.seq = m.from_seq AND f.total = m.from_total`,
		agents, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], digests, states, reasons, numbers[7], numbers[8], keys,
	).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return fmt.Errorf("%w: %d of %d frontiers moved meanwhile", ledger.ErrUnavailable, int64(n)-tag.RowsAffected(), n)
		}
		return nil
	})
}

// queueReports inserts reports. Those that hold something to fold go into the queue as well. It runs after the
// frontiers are locked, so that ids follow seq within an epoch.
func queueReports(batch *pgx.Batch, reports []ledger.Stored, now time.Time) {
	n := len(reports)
	months, agents := make([]time.Time, n), make([]string, n)
	numbers := make([][]int64, 7) // epoch, seq, before, after, through, rows, size
	for i := range numbers {
		numbers[i] = make([]int64, n)
	}
	closed := make([]bool, n)
	digests, payloads, held := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	for i := range reports {
		r := reports[i].Report
		months[i], agents[i], closed[i] = reports[i].Month, r.Agent, r.Closed
		digests[i], payloads[i], held[i] = r.Digest[:], notNil(r.Payload), notNil(reports[i].Held)
		for c, v := range [...]int64{r.Epoch, r.Seq, r.Before, r.After, r.Through, int64(reports[i].Rows), int64(reports[i].Size)} {
			numbers[c][i] = v
		}
	}
	batch.Queue(`WITH stored AS (
			INSERT INTO reports (month, agent, epoch, seq, total_before, total_after, through_ms, row_count, closed, digest, payload, held, stored_ms)
			SELECT r.*, $13::bigint FROM unnest($1::date[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
				$9::boolean[], $10::bytea[], $11::bytea[], $12::bytea[]) AS r
			RETURNING month, agent, epoch, seq, row_count, closed)
		INSERT INTO queue (month, agent, epoch, seq, row_count, size)
		SELECT month, agent, epoch, seq, row_count, size FROM stored
		JOIN unnest($2::text[], $3::bigint[], $4::bigint[], $14::bigint[]) AS sizes (agent, epoch, seq, size) USING (agent, epoch, seq)
		WHERE row_count > 0 OR closed ORDER BY agent, epoch, seq`,
		months, agents, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], closed, digests, payloads, held, now.UnixMilli(), numbers[6])
}

func queueKept(batch *pgx.Batch, kept []ledger.Quarantined, now time.Time) {
	n := len(kept)
	agents, reasons, bodies := make([]string, n), make([]string, n), make([][]byte, n)
	epochs, seqs, rows := make([]int64, n), make([]int64, n), make([]int32, n)
	tenants, slots, units := make([]string, n), make([]int64, n), make([]int64, n)
	for i, q := range kept {
		agents[i], epochs[i], seqs[i] = q.ID.Epoch.Agent, q.ID.Epoch.Epoch, q.ID.Seq
		rows[i], reasons[i], bodies[i] = int32(q.Row), q.Reason, notNil(q.Body)
		tenants[i], slots[i], units[i] = q.Note.Tenant, q.Note.Slot, q.Note.Units
	}
	batch.Queue(`INSERT INTO quarantine (agent, epoch, seq, row_number, reason, body, tenant, slot, units, stored_ms)
		SELECT q.*, $10::bigint FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::integer[], $5::text[], $6::bytea[], $7::text[], $8::bigint[], $9::bigint[]) AS q`,
		agents, epochs, seqs, rows, reasons, bodies, tenants, slots, units, now.UnixMilli())
}

// notNil keeps an empty value from becoming NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
