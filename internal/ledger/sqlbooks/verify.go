package sqlbooks

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Verify is ledger.Books'.
func (b *Books) Verify(ctx context.Context, progress func(ledger.Progress)) (v *ledger.Verified, err error) {
	_, now, err := b.room(ctx)
	if err != nil {
		return nil, err
	}
	err = b.read(ctx, func(tx *sql.Tx) error {
		if b.engine == Postgres {
			// Before the snapshot: one made while a month is dropped would miss it in both places.
			if _, err := tx.ExecContext(ctx, "LOCK TABLE reports, entries IN ACCESS SHARE MODE"); err != nil {
				return err
			}
		}
		v, err = ledger.Verify(ctx, &snapshot{b, tx, now}, progress)
		return err
	})
	return v, err
}

// snapshot is ledger.Snapshot in a transaction.
type snapshot struct {
	*Books
	tx  *sql.Tx
	now time.Time // the ledger's
}

// Counts is ledger.Snapshot's.
func (s *snapshot) Counts(ctx context.Context) (c ledger.Counts, err error) {
	err = s.tx.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM frontier), (SELECT count(*) FROM reports) + (SELECT count(*) FROM archived_reports), (SELECT count(*) FROM blocks),
		(SELECT count(*) FROM entries), (SELECT count(*) FROM rollups), (SELECT count(*) FROM quarantine)`).
		Scan(&c.Epochs, &c.Reports, &c.Blocks, &c.Entries, &c.Rollups, &c.Quarantined)
	return c, err
}

const frontierColumns = "agent, epoch, seq, total, through_ms, seen_ms, digest, state, reason"

func scanFrontier(f *ledger.Frontier, scan func(...any) error) error {
	var digest []byte
	err := scan(&f.Epoch.Agent, &f.Epoch.Epoch, &f.Seq, &f.Total, &f.Through, &f.Seen, &digest, &f.State, &f.Reason)
	hash(&f.Digest, digest)
	return err
}

// Frontiers is ledger.Snapshot's.
func (s *snapshot) Frontiers(ctx context.Context, do func(*ledger.Frontier) error) error {
	rows, err := s.tx.QueryContext(ctx, "SELECT "+frontierColumns+" FROM frontier ORDER BY agent, epoch")
	return each(rows, err, func(rows *sql.Rows) error {
		var f ledger.Frontier
		if err := scanFrontier(&f, rows.Scan); err != nil {
			return err
		}
		return do(&f)
	})
}

const reportColumns = "agent, epoch, seq, total_before, total_after, through_ms, closed, row_count, digest, payload, held, stored_ms"

// scanReport reads reportColumns, and what else is selected.
func scanReport(k *ledger.KeptReport, scan func(...any) error, more ...any) error {
	r := &k.Report
	var digest []byte
	err := scan(append([]any{&r.Agent, &r.Epoch, &r.Seq, &r.Before, &r.After, &r.Through, &r.Closed, &k.Rows, &digest, &r.Payload, &k.Held, &k.Stored}, more...)...)
	hash(&r.Digest, digest)
	return err
}

// Reports is ledger.Snapshot's.
func (s *snapshot) Reports(ctx context.Context, do func(*ledger.KeptReport) error) error {
	rows, err := s.tx.QueryContext(ctx, "SELECT "+reportColumns+", 0 AS archived FROM reports UNION ALL SELECT "+
		strings.Replace(reportColumns, "payload", "held", 1)+", 1 FROM archived_reports ORDER BY agent, epoch, seq")
	return each(rows, err, func(rows *sql.Rows) error {
		var k ledger.KeptReport
		if err := scanReport(&k, rows.Scan, &k.Archived); err != nil {
			return err
		}
		if k.Archived {
			k.Report.Payload = nil // the column only fills its place
		}
		return do(&k)
	})
}

// Queue is ledger.Snapshot's.
func (s *snapshot) Queue(ctx context.Context, do func(*ledger.Queued) error) error {
	rows, err := s.tx.QueryContext(ctx, `SELECT q.agent, q.epoch, q.seq, r.seq IS NOT NULL AND (r.row_count > 0 OR r.closed)
		FROM queue q LEFT JOIN reports r ON r.agent = q.agent AND r.epoch = q.epoch AND r.seq = q.seq ORDER BY q.id`)
	return each(rows, err, func(rows *sql.Rows) error {
		var q ledger.Queued
		if err := rows.Scan(&q.ID.Epoch.Agent, &q.ID.Epoch.Epoch, &q.ID.Seq, &q.Foldable); err != nil {
			return err
		}
		return do(&q)
	})
}

// Quarantine is ledger.Snapshot's.
func (s *snapshot) Quarantine(ctx context.Context, do func(*ledger.Quarantined) error) error {
	rows, err := s.tx.QueryContext(ctx, `SELECT agent, epoch, seq, row_number, reason, body, tenant IS NOT NULL, coalesce(tenant, ''), coalesce(slot, 0), coalesce(units, 0)
		FROM quarantine ORDER BY agent, epoch, seq, row_number, id`)
	return each(rows, err, func(rows *sql.Rows) error {
		var q ledger.Quarantined
		var noted bool
		var n ledger.Note
		if err := rows.Scan(&q.ID.Epoch.Agent, &q.ID.Epoch.Epoch, &q.ID.Seq, &q.Row, &q.Reason, &q.Body, &noted, &n.Tenant, &n.Slot, &n.Units); err != nil {
			return err
		}
		if noted {
			q.Note = &n
		}
		return do(&q)
	})
}

// Block is ledger.Snapshot's.
func (s *snapshot) Block(ctx context.Context, above int64) (*ledger.KeptBlock, error) {
	k := &ledger.KeptBlock{}
	var previous, sum []byte
	err := s.tx.QueryRowContext(ctx, "SELECT height, previous, hash, reports, entries, sources, corrections FROM blocks WHERE height > $1 ORDER BY height LIMIT 1", above).
		Scan(&k.Height, &previous, &sum, &k.Reports, &k.Count, &k.Sources, &k.Corrections)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	hash(&k.Previous, previous)
	hash(&k.Hash, sum)
	rows, err := s.tx.QueryContext(ctx, `SELECT e.n, e.slot, e.admitted, e.overage, e.denied, e.correction, `+s.d.key("e.key")+`,
			k.key IS NOT NULL, coalesce(k.tenant, ''), coalesce(k.limit_name, ''), coalesce(k.meter, ''), coalesce(k.version, 0), coalesce(k.plan, ''), coalesce(k.attributes, '')
		FROM entries e LEFT JOIN keys k ON k.key = e.key WHERE e.height = $1 ORDER BY e.n`, k.Height)
	err = each(rows, err, func(rows *sql.Rows) error {
		var r ledger.Row
		var n int
		var key []byte
		var named bool
		var of int64
		err := rows.Scan(&n, &r.Slot, &r.Admitted, &r.Overage, &r.Denied, &of, &key, &named, &r.Tenant, &r.Limit, &r.Meter, &r.Version, &r.Plan, &r.Attributes)
		k.Entries, k.N, k.Keys, k.Named = append(k.Entries, r), append(k.N, n), append(k.Keys, keyOf(key)), append(k.Named, named)
		if of == 0 && len(k.Names) == 0 {
			k.Merged++
		} else {
			k.Names = append(k.Names, of)
		}
		return err
	})
	return k, err
}

func keyOf(b []byte) (k ledger.Key) {
	copy(k[:], b)
	return k
}

// run is what dialect.runs reads.
type run struct {
	Agent string `json:"agent"`
	Epoch int64  `json:"epoch"`
	First int64  `json:"first"`
	Last  int64  `json:"last"`
}

func runList(runs []ledger.Source) []run {
	list := make([]run, len(runs))
	for i, r := range runs {
		list[i] = run{r.Epoch.Agent, r.Epoch.Epoch, r.First, r.Last}
	}
	return list
}

// Sources is ledger.Snapshot's.
func (s *snapshot) Sources(ctx context.Context, runs []ledger.Source, do func(*ledger.Pending) error) error {
	text, err := json.Marshal(runList(runs))
	if err != nil {
		return err
	}
	rows, err := s.tx.QueryContext(ctx, `SELECT r.agent, r.epoch, r.seq, r.closed, r.payload, r.held
		FROM `+s.d.runs+` JOIN reports r ON r.agent = s.agent AND r.epoch = s.epoch AND r.seq >= s.first AND r.seq <= s.last
		WHERE r.row_count > 0 OR r.closed ORDER BY r.agent, r.epoch, r.seq`, string(text))
	return each(rows, err, func(rows *sql.Rows) error {
		var p ledger.Pending
		if err := rows.Scan(&p.ID.Epoch.Agent, &p.ID.Epoch.Epoch, &p.ID.Seq, &p.Closed, &p.Payload, &p.Held); err != nil {
			return err
		}
		return do(&p)
	})
}

// Untouched is ledger.Snapshot's.
func (s *snapshot) Untouched(ctx context.Context, notes []ledger.Touch) ([]ledger.Touch, error) {
	type note struct {
		Agent  string `json:"agent"`
		Epoch  int64  `json:"epoch"`
		Tenant string `json:"tenant"`
	}
	list := make([]note, len(notes))
	for i, n := range notes {
		list[i] = note{n.Epoch().Agent, n.Epoch().Epoch, n.Tenant()}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	var missing []ledger.Touch
	rows, err := s.tx.QueryContext(ctx, `SELECT s.agent, s.epoch, s.tenant FROM `+s.d.notes+`
		LEFT JOIN touched t ON t.tenant = s.tenant AND t.agent = s.agent AND t.epoch = s.epoch WHERE t.tenant IS NULL`, string(text))
	err = each(rows, err, func(rows *sql.Rows) error {
		var e ledger.Epoch
		var tenant string
		err := rows.Scan(&e.Agent, &e.Epoch, &tenant)
		missing = append(missing, ledger.NewTouch(e, tenant))
		return err
	})
	return missing, err
}

// Corrections is ledger.Snapshot's.
func (s *snapshot) Corrections(ctx context.Context, numbers []int64) ([]ledger.Correction, error) {
	return readCorrections(ctx, s.tx, "WHERE number IN ("+list(numbers)+") ORDER BY number")
}

// CorrectionNumbers is ledger.Snapshot's.
func (s *snapshot) CorrectionNumbers(ctx context.Context, do func(int64, bool) error) error {
	rows, err := s.tx.QueryContext(ctx, `SELECT c.number, q.number IS NOT NULL
		FROM corrections c LEFT JOIN corrections_queue q ON q.number = c.number ORDER BY c.number`)
	return each(rows, err, func(rows *sql.Rows) error {
		var number int64
		var queued bool
		if err := rows.Scan(&number, &queued); err != nil {
			return err
		}
		return do(number, queued)
	})
}

// Released is ledger.Snapshot's.
func (s *snapshot) Released(ctx context.Context, correction int64) ([]ledger.Quarantined, error) {
	kept, err := s.quarantine(ctx, s.tx, "WHERE r.correction = $1 ORDER BY q.id", correction)
	if err != nil {
		return nil, err
	}
	all := make([]ledger.Quarantined, len(kept))
	for i := range kept {
		if err := fill(ctx, s.tx, &kept[i]); err != nil {
			return nil, err
		}
		all[i] = kept[i].Quarantined
	}
	return all, nil
}

// Misresolved is ledger.Snapshot's.
func (s *snapshot) Misresolved(ctx context.Context, do func(quarantined, correction int64) error) error {
	rows, err := s.tx.QueryContext(ctx, `SELECT r.quarantined, r.correction FROM resolutions r
		LEFT JOIN quarantine q ON q.id = r.quarantined LEFT JOIN corrections c ON c.number = r.correction
		WHERE q.id IS NULL OR r.correction <> 0 AND (c.kind IS NULL OR c.kind <> 'release') ORDER BY 1`)
	return each(rows, err, func(rows *sql.Rows) error {
		var quarantined, correction int64
		if err := rows.Scan(&quarantined, &correction); err != nil {
			return err
		}
		return do(quarantined, correction)
	})
}

// Unrolled is ledger.Snapshot's: month by month, so that each question is bounded.
func (s *snapshot) Unrolled(ctx context.Context, do func(*ledger.RollupFault) error) error {
	months, err := s.months(ctx, s.tx)
	if err != nil {
		return err
	}
	first, err := s.archivedBefore(ctx, s.tx)
	if err != nil {
		return err
	}
	if first == 0 {
		first = math.MinInt64
	}
	months = slices.DeleteFunc(months, func(m int64) bool { return m <= first })
	edges := append(append([]int64{first}, months...), math.MaxInt64)
	for i := range len(edges) - 1 {
		if err := s.unrolled(ctx, edges[i], edges[i+1], do); err != nil {
			return err
		}
	}
	return nil
}

func (s *snapshot) unrolled(ctx context.Context, from, to int64, do func(*ledger.RollupFault) error) error {
	rows, err := s.tx.QueryContext(ctx, s.d.unrolled, from, to)
	return each(rows, err, func(rows *sql.Rows) error {
		var f ledger.RollupFault
		var key []byte
		var has, n int64
		var high, low ledger.Sum
		if err := rows.Scan(&f.Hour, &key, &has, &f.Has.Admitted, &f.Has.Overage, &f.Has.Denied, &n,
			&high.Admitted, &low.Admitted, &high.Overage, &low.Overage, &high.Denied, &low.Denied); err != nil {
			return err
		}
		f.Key, f.Sum = keyOf(key), ledger.SumOf(high, low)
		if has == n && f.Has == f.Sum {
			return nil // a sum that ended at ledger.MaxSum
		}
		return do(&f)
	})
}
