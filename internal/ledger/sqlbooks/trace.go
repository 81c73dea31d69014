package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// TraceReport is ledger.Books'.
func (b *Books) TraceReport(ctx context.Context, id ledger.ReportID) (t *ledger.ReportTrace, err error) {
	err = b.read(ctx, func(tx *sql.Tx) error {
		t, err = b.traceReport(ctx, tx, id)
		return err
	})
	return t, err
}

func (b *Books) traceReport(ctx context.Context, tx *sql.Tx, id ledger.ReportID) (*ledger.ReportTrace, error) {
	var k ledger.KeptReport
	err := scanReport(&k, tx.QueryRowContext(ctx, "SELECT "+reportColumns+" FROM reports WHERE agent = $1 AND epoch = $2 AND seq = $3",
		id.Epoch.Agent, id.Epoch.Epoch, id.Seq).Scan)
	file := ""
	if errors.Is(err, sql.ErrNoRows) {
		k, file, err = b.archivedReport(ctx, tx, id)
	}
	if err != nil {
		return nil, err
	}
	t := &ledger.ReportTrace{Report: k.Report, Stored: time.UnixMilli(k.Stored).UTC(), File: file}
	if file != "" {
		if k.Rows > 0 || k.Report.Closed {
			t.Block, err = b.blockOf(ctx, tx, id, k.Stored)
		}
		return t, err
	}
	t.Report.Payload = nil
	rows, err := ledger.DecodeRows(k.Report.Payload)
	if err != nil {
		return nil, err
	}
	kept, err := b.quarantine(ctx, tx, "WHERE q.agent = $1 AND q.epoch = $2 AND q.seq = $3 AND q.row_number >= 0 ORDER BY q.row_number", id.Epoch.Agent, id.Epoch.Epoch, id.Seq)
	if err != nil {
		return nil, err
	}
	held := map[int]int64{}
	for i := range kept {
		held[kept[i].Row] = kept[i].ID
	}
	err = tx.QueryRowContext(ctx, "SELECT count(*) > 0 FROM queue WHERE agent = $1 AND epoch = $2 AND seq = $3", id.Epoch.Agent, id.Epoch.Epoch, id.Seq).Scan(&t.Queued)
	if err != nil {
		return nil, err
	}
	places := map[ledger.Row]int{}
	if !t.Queued && (len(rows) > 0 || k.Report.Closed) {
		if t.Block, err = b.blockOf(ctx, tx, id, k.Stored); err != nil {
			return nil, err
		}
		block, err := (&snapshot{Books: b, tx: tx}).Block(ctx, t.Block.Height-1)
		if err != nil {
			return nil, err
		}
		for i := range block.Entries[:block.Merged] {
			places[block.Entries[i].Key()] = block.N[i]
		}
	}
	for i, row := range rows {
		traced := ledger.TracedRow{Row: row, Quarantined: held[i]}
		if n, ok := places[row.Key()]; ok && traced.Quarantined == 0 {
			traced.Entry = ledger.EntryID{Height: t.Block.Height, N: n}
		}
		t.Rows = append(t.Rows, traced)
	}
	return t, nil
}

// clockSlack is how far the clocks of intake and of the fold's leader may be apart for
// a report's block to be found by time.
const clockSlack = 10 * time.Minute

// blockOf finds the block that a report is in: the first that names it, from those on
// that were folded when it was stored. Where clocks misled it, it looks at all.
func (b *Books) blockOf(ctx context.Context, tx *sql.Tx, id ledger.ReportID, stored int64) (ledger.KeptBlockInfo, error) {
	var highest int64
	if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(height), 0) FROM blocks").Scan(&highest); err != nil {
		return ledger.KeptBlockInfo{}, err
	}
	low, high := int64(1), highest+1
	for low < high {
		middle := low + (high-low)/2
		var folded int64
		err := tx.QueryRowContext(ctx, "SELECT folded_ms FROM blocks WHERE height = $1", middle).Scan(&folded)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return ledger.KeptBlockInfo{}, err
		}
		if folded < stored-clockSlack.Milliseconds() {
			low = middle + 1
		} else {
			high = middle
		}
	}
	for _, from := range []int64{low, 1} {
		info, err := firstNaming(ctx, tx, id, from)
		if err != nil || info.Height != 0 {
			return info, err
		}
	}
	return ledger.KeptBlockInfo{}, fmt.Errorf("%w: report %s is neither queued nor in a block: verify the ledger", ledger.ErrNotFound, id)
}

var errFound = errors.New("sqlbooks: found")

func firstNaming(ctx context.Context, tx *sql.Tx, id ledger.ReportID, from int64) (info ledger.KeptBlockInfo, err error) {
	const page = 256
	for {
		n := 0
		rows, err := tx.QueryContext(ctx, "SELECT height, hash, folded_ms, sources FROM blocks WHERE height >= $1 ORDER BY height LIMIT $2", from, page)
		err = each(rows, err, func(rows *sql.Rows) error {
			n++
			var sum, sources []byte
			var folded int64
			if err := rows.Scan(&info.Height, &sum, &folded, &sources); err != nil {
				return err
			}
			from = info.Height + 1
			runs, err := ledger.DecodeSources(sources)
			for _, r := range runs {
				if r.Epoch == id.Epoch && r.First <= id.Seq && id.Seq <= r.Last {
					hash(&info.Hash, sum)
					info.Folded = time.UnixMilli(folded).UTC()
					return errFound
				}
			}
			return err
		})
		switch {
		case errors.Is(err, errFound):
			return info, nil
		case err != nil || n < page:
			return ledger.KeptBlockInfo{}, err
		}
	}
}

// entry reads an entry and the block that it is in.
func (b *Books) entry(ctx context.Context, tx *sql.Tx, id ledger.EntryID) (row ledger.Row, correction int64, err error) {
	err = tx.QueryRowContext(ctx, `SELECT e.slot, k.tenant, k.limit_name, k.meter, k.version, k.plan, k.attributes, e.admitted, e.overage, e.denied, e.correction
		FROM entries e JOIN keys k ON k.key = e.key WHERE e.height = $1 AND e.n = $2`, id.Height, id.N).
		Scan(&row.Slot, &row.Tenant, &row.Limit, &row.Meter, &row.Version, &row.Plan, &row.Attributes, &row.Admitted, &row.Overage, &row.Denied, &correction)
	if errors.Is(err, sql.ErrNoRows) {
		err = b.whereEntry(ctx, tx, id)
	}
	return row, correction, err
}

// TraceEntry is ledger.Books'.
func (b *Books) TraceEntry(ctx context.Context, id ledger.EntryID) (*ledger.EntryTrace, error) {
	t := &ledger.EntryTrace{ID: id}
	var correction int64
	err := b.read(ctx, func(tx *sql.Tx) (err error) {
		if t.Row, correction, err = b.entry(ctx, tx, id); err != nil {
			return err
		}
		var sum, sources []byte
		var folded int64
		if err := tx.QueryRowContext(ctx, "SELECT height, hash, folded_ms, sources FROM blocks WHERE height = $1", id.Height).
			Scan(&t.Block.Height, &sum, &folded, &sources); err != nil {
			return err
		}
		hash(&t.Block.Hash, sum)
		t.Block.Folded = time.UnixMilli(folded).UTC()
		corrected, err := readCorrections(ctx, tx, "WHERE entry_height = $1 AND entry_n = $2 AND entry_height > 0 ORDER BY number LIMIT 1000", id.Height, id.N)
		t.Corrected = ledger.Numbers(corrected)
		if err != nil || correction != 0 {
			return err
		}
		runs, err := ledger.DecodeSources(sources)
		if err != nil {
			return err
		}
		s := snapshot{Books: b, tx: tx}
		archived, err := s.ArchivedSources(ctx, runs)
		if err != nil {
			return err
		}
		for _, n := range archived {
			t.Archived += n
		}
		return s.Sources(ctx, runs, func(p *ledger.Pending) error {
			rows, err := p.Rows()
			for j := range rows {
				if r := &rows[j]; r.Key() == t.Row.Key() {
					t.Reports = append(t.Reports, ledger.Share{ID: p.ID, Sum: ledger.Sum{Admitted: r.Admitted, Overage: r.Overage, Denied: r.Denied}})
				}
			}
			return err
		})
	})
	if err == nil && correction != 0 {
		var k ledger.KeptCorrection
		k, err = b.Correction(ctx, correction)
		t.Correction = &k
	}
	return t, err
}
