package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/archive"
)

// errDamaged ends what would archive a ledger that is not sound.
var errDamaged = errors.New("verify the ledger")

// monthly is a month on its way into files.
type monthly struct {
	*Owner
	r       *Retention
	month   time.Time
	files   []ledger.Archive
	settled map[ledger.AccountID]int64 // what its reports hold: some hundred bytes for each limit of an epoch
}

// archive writes a month's files and drops what they were made of.
func (o *Owner) archive(ctx context.Context, r *Retention, month time.Time, id string) ([]ledger.Archive, error) {
	m := &monthly{Owner: o, r: r, month: month, settled: map[ledger.AccountID]int64{}}
	for _, fact := range facts {
		h := archive.NewHeader(fact, month, id)
		a := ledger.Archive{Month: month, Fact: fact, File: h.Name()}
		rows := m.reports
		if fact == ledger.FactEntries {
			rows = m.entries
		}
		step := func(what string) error { return r.step(month, fact+" "+what) }
		s, err := archive.Write(r.Dir, h, step, func(put func(any) error) error {
			return o.b.read(ctx, func(tx *sql.Tx) error { return rows(ctx, tx, &a, put) })
		})
		if err != nil {
			return nil, err
		}
		a.Rows, a.Bytes, a.SHA256 = s.Rows, s.Bytes, s.SHA256
		m.files = append(m.files, a)
	}
	now, err := o.clock(ctx)
	if err != nil {
		return nil, err
	}
	return m.files, o.patient(ctx, func(tx *sql.Tx) error { return m.drop(ctx, tx, now.UnixMilli()) })
}

// reports reads the month's reports, each of which fits its digest.
func (m *monthly) reports(ctx context.Context, tx *sql.Tx, _ *ledger.Archive, put func(any) error) error {
	rows, err := tx.QueryContext(ctx, "SELECT "+reportColumns+" FROM reports WHERE month = "+m.b.d.month("$1")+" ORDER BY agent, epoch, seq", m.month.Unix())
	return each(rows, err, func(rows *sql.Rows) error {
		var k ledger.KeptReport
		if err := scanReport(&k, rows.Scan); err != nil {
			return err
		}
		p := ledger.Pending{ID: ledger.ReportID{Epoch: ledger.Epoch{Agent: k.Report.Agent, Epoch: k.Report.Epoch}, Seq: k.Report.Seq}, Payload: k.Report.Payload}
		err := k.Report.Check()
		if err != nil {
			return fmt.Errorf("%w: report %s: %w", errDamaged, p.ID, err)
		}
		settled, err := p.Settled()
		for _, s := range settled {
			m.settled[s.ID] += s.Units
		}
		return errors.Join(err, put(archive.NewReport(&k)))
	})
}

// entries reads the month's entries, each of which has the names that its key is of.
func (m *monthly) entries(ctx context.Context, tx *sql.Tx, a *ledger.Archive, put func(any) error) error {
	rows, err := tx.QueryContext(ctx, `SELECT e.height, e.n, e.slot, e.admitted, e.overage, e.denied, e.correction, `+m.b.d.key("e.key")+`,
			k.key IS NOT NULL, coalesce(k.tenant, ''), coalesce(k.limit_name, ''), coalesce(k.meter, ''), coalesce(k.version, 0), coalesce(k.plan, ''), coalesce(k.attributes, '')
		FROM entries e LEFT JOIN keys k ON k.key = e.key WHERE e.month = `+m.b.d.month("$1")+" ORDER BY e.height, e.n", m.month.Unix())
	return each(rows, err, func(rows *sql.Rows) error {
		var e archive.Entry
		var key []byte
		var named bool
		if err := rows.Scan(&e.Height, &e.N, &e.Slot, &e.Admitted, &e.Overage, &e.Denied, &e.Correction, &key,
			&named, &e.Tenant, &e.Limit, &e.Meter, &e.Version, &e.Plan, &e.Attributes); err != nil {
			return err
		}
		if row := e.Row(); !named || ledger.KeyOf(&row) != keyOf(key) {
			return fmt.Errorf("%w: entry %d/%d has a key without names, or with others", errDamaged, e.Height, e.N)
		}
		if a.Low == 0 {
			a.Low = e.Height
		}
		a.High = e.Height
		return put(&e)
	})
}

// drop notes what the files hold and drops what they were made of, or neither.
func (m *monthly) drop(ctx context.Context, tx *sql.Tx, now int64) error {
	is := "month = " + m.b.d.month("$1")
	if m.b.engine == Postgres {
		for _, fact := range facts { // nothing is added any more, whoever should
			if _, err := tx.ExecContext(ctx, "LOCK TABLE "+m.partition(fact)+" IN SHARE ROW EXCLUSIVE MODE"); err != nil {
				return err
			}
		}
	}
	// Servers of an earlier release judge by months that are gone, and may have queued a report since. Without
	// the report, its place in the queue could never be folded.
	var queued int64
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM queue q JOIN reports r ON r.agent = q.agent AND r.epoch = q.epoch AND r.seq = q.seq WHERE r."+is, m.month.Unix()).Scan(&queued); err != nil {
		return err
	}
	if queued > 0 {
		return fmt.Errorf("%w: %d reports of it wait to be folded; have a server fold them, and run it again", ledger.ErrRetention, queued)
	}
	const columns = "month, agent, epoch, seq, total_before, total_after, through_ms, closed, row_count, digest, held, stored_ms"
	for _, statement := range []string{
		"INSERT INTO archived_reports (" + columns + ") SELECT " + columns + " FROM reports WHERE " + is,
		`INSERT INTO archived_corrections (correction, month, height)
			SELECT correction, month, max(height) FROM entries WHERE correction > 0 AND ` + is + " GROUP BY correction, month",
	} {
		if _, err := tx.ExecContext(ctx, statement, m.month.Unix()); err != nil {
			return err
		}
	}
	for id, units := range m.settled {
		_, err := tx.ExecContext(ctx, "INSERT INTO archived_settled (agent, epoch, limit_name, month, units) VALUES ($2, $3, $4, "+m.b.d.month("$1")+", $5)",
			m.month.Unix(), id.Epoch.Agent, id.Epoch.Epoch, id.Limit, units)
		if err != nil {
			return err
		}
	}
	for _, a := range m.files {
		var rows int64
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM "+a.Fact+" WHERE "+is, m.month.Unix()).Scan(&rows); err != nil {
			return err
		}
		if rows != a.Rows {
			return fmt.Errorf("%w: %s has %d rows, and %d are there now", errDamaged, a.File, a.Rows, rows)
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO archives (month, fact, file, row_count, bytes, sha256, low, high, actor, at_ms)
			VALUES (`+m.b.d.month("$1")+", $2, $3, $4, $5, $6, $7, $8, $9, $10)",
			m.month.Unix(), a.Fact, a.File, a.Rows, a.Bytes, a.SHA256, a.Low, a.High, m.r.Actor, now)
		if err != nil {
			return err
		}
	}
	c := &change{Tx: tx, d: m.b.d, actor: m.r.Actor, now: now}
	if err := m.last(ctx, c); err != nil {
		return err
	}
	before := map[string]any{}
	for _, a := range m.files {
		before[a.Fact] = map[string]any{"rows": a.Rows, "in": "the ledger"}
	}
	if err := c.audit(ctx, "ledger.archive", m.month.Format("2006-01"), before, summaryOf(m.files)); err != nil {
		return err
	}
	if err := c.end(ctx); err != nil {
		return err
	}
	return m.r.step(m.month, "committing")
}

// last takes the row of heads and drops the month. It may be tried again without the steps before it, which
// take long. Others may be reading the tables for long.
func (m *monthly) last(ctx context.Context, c *change) error {
	if m.b.engine != Postgres {
		if err := c.begin(ctx); err != nil {
			return err
		}
		for _, fact := range facts {
			if _, err := c.ExecContext(ctx, "DELETE FROM "+fact+" WHERE month = $1", m.month.Unix()); err != nil {
				return err
			}
		}
		return nil
	}
	for try := 1; ; try++ {
		if _, err := c.ExecContext(ctx, "SAVEPOINT last"); err != nil {
			return err
		}
		err := c.begin(ctx)
		for _, fact := range facts {
			if err == nil {
				_, err = c.ExecContext(ctx, "DROP TABLE "+m.partition(fact))
			}
		}
		if err == nil || try == tries || !inTheWay(err) {
			return err
		}
		if _, err := c.ExecContext(ctx, "ROLLBACK TO SAVEPOINT last"); err != nil {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

func (m *monthly) partition(fact string) string { return fact + m.month.Format("_200601") }

// summaryOf is what the audit log keeps of archives.
func summaryOf(files []ledger.Archive) any {
	all := map[string]any{}
	for _, a := range files {
		all[a.Fact] = map[string]any{"file": a.File, "rows": a.Rows, "sha256": a.SHA256}
	}
	return all
}
