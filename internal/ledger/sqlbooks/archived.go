package sqlbooks

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// archivedBefore is the first second that entries are not archived from; 0 where no
// month is archived.
func (b *Books) archivedBefore(ctx context.Context, q querier) (int64, error) {
	var month sql.NullInt64
	err := q.QueryRowContext(ctx, "SELECT "+b.d.seconds("max(month)")+" FROM archives").Scan(&month)
	if err != nil || !month.Valid {
		return 0, err
	}
	return ledger.Month(month.Int64).AddDate(0, 1, 0).Unix(), nil
}

// archives are those of the months; where is a condition on them.
func (b *Books) archives(ctx context.Context, q querier, where string, args ...any) ([]ledger.Archive, error) {
	var all []ledger.Archive
	rows, err := q.QueryContext(ctx, "SELECT "+b.d.seconds("month")+", fact, file, row_count, bytes, sha256, low, high FROM archives "+where+" ORDER BY month, fact DESC", args...)
	err = each(rows, err, func(rows *sql.Rows) error {
		var a ledger.Archive
		var month int64
		err := rows.Scan(&month, &a.Fact, &a.File, &a.Rows, &a.Bytes, &a.SHA256, &a.Low, &a.High)
		a.Month = time.Unix(month, 0).UTC()
		all = append(all, a)
		return err
	})
	if err != nil {
		err = fmt.Errorf("read archives: %w", err)
	}
	return all, err
}

// Archives is ledger.Snapshot's.
func (s *snapshot) Archives(ctx context.Context) (all []ledger.Archive, reports, rollups int64, err error) {
	if all, err = s.archives(ctx, s.tx, ""); err != nil || len(all) == 0 {
		return all, 0, 0, err
	}
	before := all[len(all)-1].Month.AddDate(0, 1, 0).Unix()
	err = s.tx.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM archived_reports), (SELECT count(*) FROM rollups WHERE hour < $1)", before).
		Scan(&reports, &rollups)
	return all, reports, rollups, err
}

// ArchivedSources is ledger.Snapshot's.
func (s *snapshot) ArchivedSources(ctx context.Context, runs []ledger.Source) (map[ledger.Epoch]int64, error) {
	text, err := json.Marshal(runList(runs))
	if err != nil {
		return nil, err
	}
	found := map[ledger.Epoch]int64{}
	rows, err := s.tx.QueryContext(ctx, `SELECT r.agent, r.epoch, count(*)
		FROM `+s.d.runs+` JOIN archived_reports r ON r.agent = s.agent AND r.epoch = s.epoch AND r.seq >= s.first AND r.seq <= s.last
		WHERE r.row_count > 0 OR r.closed GROUP BY r.agent, r.epoch`, string(text))
	err = each(rows, err, func(rows *sql.Rows) error {
		var e ledger.Epoch
		var n int64
		err := rows.Scan(&e.Agent, &e.Epoch, &n)
		found[e] = n
		return err
	})
	return found, err
}

// ArchivedSettled is ledger.Snapshot's.
func (s *snapshot) ArchivedSettled(ctx context.Context, do func(ledger.SettledUnits) error) error {
	rows, err := s.tx.QueryContext(ctx, "SELECT agent, epoch, limit_name, units FROM archived_settled")
	return each(rows, err, func(rows *sql.Rows) error {
		var a ledger.SettledUnits
		if err := rows.Scan(&a.ID.Epoch.Agent, &a.ID.Epoch.Epoch, &a.ID.Limit, &a.Units); err != nil {
			return err
		}
		return do(a)
	})
}

// archivedReport is a report whose payload is in a file, and that file.
func (b *Books) archivedReport(ctx context.Context, tx *sql.Tx, id ledger.ReportID) (k ledger.KeptReport, file string, err error) {
	r := &k.Report
	var digest []byte
	err = tx.QueryRowContext(ctx, `SELECT r.agent, r.epoch, r.seq, r.total_before, r.total_after, r.through_ms, r.closed, r.row_count, r.digest, r.held, r.stored_ms, a.file
		FROM archived_reports r JOIN archives a ON a.month = r.month AND a.fact = 'reports' WHERE r.agent = $1 AND r.epoch = $2 AND r.seq = $3`,
		id.Epoch.Agent, id.Epoch.Epoch, id.Seq).
		Scan(&r.Agent, &r.Epoch, &r.Seq, &r.Before, &r.After, &r.Through, &r.Closed, &k.Rows, &digest, &k.Held, &k.Stored, &file)
	hash(&r.Digest, digest)
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("%w: no report %s", ledger.ErrNotFound, id)
	}
	return k, file, err
}

// whereEntry says that an entry is not there, and which archives may have it.
func (b *Books) whereEntry(ctx context.Context, tx *sql.Tx, id ledger.EntryID) error {
	may, err := b.archives(ctx, tx, "WHERE fact = 'entries' AND low <= $1 AND high >= $1", id.Height)
	if err != nil {
		return err
	}
	files := ""
	for i, a := range may {
		if i > 0 {
			files += " or "
		}
		files += a.File
	}
	if files != "" {
		return fmt.Errorf("%w: no entry %d/%d; if there was one, it is archived in %s", ledger.ErrNotFound, id.Height, id.N, files)
	}
	return fmt.Errorf("%w: no entry %d/%d", ledger.ErrNotFound, id.Height, id.N)
}

// rollupsArchived says why a tenant's sealed usage cannot be read: some of it is of archived months.
func (b *Books) rollupsArchived(ctx context.Context, tx *sql.Tx, q *ledger.SealedQuery) error {
	before, err := b.archivedBefore(ctx, tx)
	if err != nil || q.From >= before {
		return err
	}
	var any bool
	err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM keys k JOIN rollups r ON r.key = k.key
		WHERE k.tenant = $1 AND k.meter <> '' AND r.hour >= $2 AND r.hour < $3)`, q.Tenant, q.From-q.From%3600, min(before, q.To)).Scan(&any)
	if err == nil && any {
		err = fmt.Errorf("%w: entries before %s are archived, and there were some of tenant %q from %s on", ledger.ErrQuery,
			time.Unix(before, 0).UTC().Format(time.RFC3339), q.Tenant, time.Unix(q.From, 0).UTC().Format(time.RFC3339))
	}
	return err
}
