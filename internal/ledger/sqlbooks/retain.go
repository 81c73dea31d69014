package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/ledger/archive"
)

// Owner does what the owner of the tables does, and no server. It puts whole months of reports and entries into
// files, and takes them out of the ledger.
//
// A month goes in three steps. Each may be the last before a crash, and another run goes on from it:
//
//   - The month is retired, so that nothing more is stored of it.
//   - Its files are written, read back, and given their names.
//   - In one transaction, the files' contents are noted and the originals dropped.
type Owner struct {
	b   *Books
	now func() time.Time // nil for the database's clock
}

// NewOwner returns the owner of a ledger, on connections that have the owner's rights.
// db stays the caller's to close; on SQLite its transactions take the write lock when they
// begin. now is for tests; nil for the engine's clock.
func NewOwner(db *sql.DB, engine Engine, now func() time.Time) *Owner {
	return &Owner{New(db, engine, ledger.Options{}, nil, func(err error) error { return err }), now}
}

// Retention says what to archive.
type Retention struct {
	// Before is the first second of the oldest month that stays, in UTC.
	Before time.Time
	// Dir is where the files go. It is there, and durable.
	Dir string
	// Actor is who does it, for the audit log.
	Actor string
	// Unbilled allows months that statements would still be made of: neither these nor any
	// later ones of the same tenants can be made any more.
	Unbilled bool
	// Plan only says what would be archived.
	Plan bool
	// Wait is how long the folding of reports that servers took earlier may take.
	Wait time.Duration
	// Fold folds what is queued, where no server does; nil waits for servers.
	Fold func(context.Context) error
	// Step is told what is done next, of which month; an error ends it there. Nil for nobody.
	Step func(month time.Time, what string) error
}

// step tells, and never fails for nobody.
func (r *Retention) step(month time.Time, what string) error {
	if r.Step == nil {
		return nil
	}
	return r.Step(month, what)
}

// retireFor is how many months after the last archived one take no more usage as well. A period that begins in
// the last archived month may end in the next. Late usage there would rate the period again, from entries that
// are gone.
const retireFor = 1

// Retain archives all months before r.Before, the oldest first, and returns the files. A refusal is
// ledger.ErrRetention. It changed nothing, with one exception: usage came between the look for statements and
// the retiring of months. Then those months stay retired, and a run after the statement goes on from there.
func (o *Owner) Retain(ctx context.Context, r Retention) (done []ledger.Archive, err error) {
	now, err := o.clock(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.check(now); err != nil {
		return nil, err
	}
	release, err := o.alone(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	months, err := o.months(ctx, r.Before)
	if err != nil || len(months) == 0 {
		return nil, err
	}
	if !r.Plan { // what is queued may be late usage that a statement is to be made of
		if err := o.folded(ctx, &r); err != nil {
			return nil, err
		}
	}
	if err := o.billed(ctx, &r, months); err != nil {
		return nil, err
	}
	if r.Plan {
		return o.plan(ctx, months)
	}
	if err := o.retire(ctx, &r); err != nil {
		return nil, fmt.Errorf("retire months: %w", err)
	}
	if err := r.step(r.Before, "retired"); err != nil {
		return nil, err
	}
	if err := o.folded(ctx, &r); err != nil {
		return nil, err
	}
	// What was taken between that look and the end of taking may have come after a statement.
	if err := o.billed(ctx, &r, months); err != nil {
		return nil, err
	}
	ledgerID, err := o.identity(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range months {
		two, err := o.archive(ctx, &r, m, ledgerID)
		if err != nil {
			return done, fmt.Errorf("%s: %w", m.Format("2006-01"), err)
		}
		done = append(done, two...)
		if err := r.step(m, "dropped"); err != nil {
			return done, err
		}
	}
	return done, nil
}

// maxWait bounds Retention.Wait.
const maxWait = 24 * time.Hour

func (r *Retention) check(now time.Time) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ledger.ErrRetention}, args...)...)
	}
	latest := ledger.Month(now.Unix()).AddDate(0, -ledger.LeastKept, 0)
	switch {
	case !r.Before.Equal(ledger.Month(r.Before.Unix())):
		return bad("%s is not the beginning of a month", r.Before.UTC().Format(time.RFC3339))
	case r.Before.After(latest):
		return bad("months before %s are asked for; at most those before %s, for the %d before the present one stay",
			r.Before.UTC().Format("2006-01"), latest.Format("2006-01"), ledger.LeastKept)
	case r.Actor == "" || len(r.Actor) > maxActor:
		return bad("it is done by someone, whose name has 1 to %d bytes", maxActor)
	case r.Wait < 0 || r.Wait > maxWait:
		return bad("it waits for %s; 0 to %s", r.Wait, maxWait)
	case r.Plan:
		return nil
	}
	// Found out now, not when months are retired.
	f, err := os.CreateTemp(r.Dir, ".probe-*")
	if err != nil {
		return bad("the archive's directory: %v", err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return bad("the archive's directory: %v", err)
	}
	return nil
}

func (o *Owner) clock(ctx context.Context) (now time.Time, err error) {
	switch {
	case o.now != nil:
		return o.now(), nil
	case o.b.engine != Postgres:
		return time.Now(), nil
	}
	err = o.b.db.QueryRowContext(ctx, "SELECT clock_timestamp()").Scan(&now)
	return now, err
}

// alone is held by the running retention. A SQLite file is its caller's to hold.
func (o *Owner) alone(ctx context.Context) (release func(), err error) {
	if o.b.engine != Postgres {
		return func() {}, nil
	}
	const lock = "hashtextextended('quota.retain.' || current_schema(), 0)"
	conn, err := o.b.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var got bool
	if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock("+lock+")").Scan(&got); err != nil || !got {
		if err == nil {
			err = fmt.Errorf("%w: another is at it", ledger.ErrRetention)
		}
		return nil, errors.Join(err, conn.Close())
	}
	return func() {
		// Where the connection is broken, the lock went with it.
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock("+lock+")")
		_ = conn.Close()
	}, nil
}

// months are those before a time that are not archived, the oldest first.
func (o *Owner) months(ctx context.Context, before time.Time) ([]time.Time, error) {
	d := o.b.d
	var all []time.Time
	rows, err := o.b.db.QueryContext(ctx, "SELECT "+d.seconds("m.month")+` FROM (SELECT month FROM months UNION SELECT month FROM retired) AS m
		WHERE m.month < `+d.month("$1")+" AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.month = m.month) ORDER BY m.month", before.Unix())
	err = each(rows, err, func(rows *sql.Rows) error {
		var s int64
		err := rows.Scan(&s)
		all = append(all, time.Unix(s, 0).UTC())
		return err
	})
	return all, err
}

// identity names the ledger in its archives: by the hash of its first block.
func (o *Owner) identity(ctx context.Context) (string, error) {
	var first []byte
	err := o.b.db.QueryRowContext(ctx, "SELECT hash FROM blocks WHERE height = 1").Scan(&first)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil // nothing was ever folded
	}
	return fmt.Sprintf("%x", first), err
}

// paidSQL is the payers of tenants that do not pay for themselves, from and to in Unix seconds: as terms.Payers
// has it. A row of payers holds from its time on in the place of the rows before it. $3 is how far up it looks.
const paidSQL = `WITH RECURSIVE direct AS (
		SELECT p.tenant, p.payer, p.from_s, coalesce((SELECT min(q.from_s) FROM payers q WHERE q.tenant = p.tenant AND q.number > p.number), 4611686018427387904) AS to_s FROM payers p
	), above(tenant, payer, from_s, to_s, level) AS (
		SELECT tenant, payer, from_s, to_s, 1 FROM direct WHERE payer <> '' AND from_s < to_s
		UNION ALL
		SELECT a.tenant, d.payer, CASE WHEN a.from_s > d.from_s THEN a.from_s ELSE d.from_s END, CASE WHEN a.to_s < d.to_s THEN a.to_s ELSE d.to_s END, a.level + 1
		FROM above a JOIN direct d ON d.tenant = a.payer
		WHERE d.payer <> '' AND a.level < $3 AND a.from_s < d.to_s AND d.from_s < a.to_s AND d.from_s < d.to_s
	), cuts AS (
		SELECT tenant, from_s AS at FROM above UNION SELECT tenant, to_s FROM above
	), parts AS (
		SELECT tenant, at AS from_s, lead(at) OVER (PARTITION BY tenant ORDER BY at) AS to_s FROM cuts
	), paid AS (
		SELECT p.tenant, p.from_s, p.to_s, (SELECT a.payer FROM above a WHERE a.tenant = p.tenant AND a.from_s <= p.from_s AND p.from_s < a.to_s ORDER BY a.level DESC LIMIT 1) AS payer
		FROM parts p WHERE p.to_s IS NOT NULL
	) `

// billed refuses months with entries that a statement is still to be made of. These are entries of tenants
// whose payer's last statement ends before them, or was made before they came. Late entries after the cut of a
// closed period that began before it count too, for the period is rated again.
func (o *Owner) billed(ctx context.Context, r *Retention, months []time.Time) error {
	if r.Unbilled {
		return nil
	}
	for _, m := range months {
		err := o.unbilled(ctx, m, "LEFT JOIN (SELECT tenant, max(to_s) AS to_s, max(height) AS height FROM statements GROUP BY tenant)",
			"(s.tenant IS NULL OR e.slot >= s.to_s OR e.height > s.height)")
		if err != nil {
			return err
		}
	}
	return o.unbilled(ctx, r.Before, "JOIN (SELECT tenant, max(CASE WHEN from_s < $1 THEN to_s ELSE 0 END) AS to_s, max(height) AS height FROM statements GROUP BY tenant)",
		"e.slot < s.to_s AND e.height > s.height")
}

// unbilled refuses a month, $1, with metered entries e for which a condition holds. The payers' statements are
// joined as s. The refusal names the payers.
func (o *Owner) unbilled(ctx context.Context, month time.Time, statements, condition string) error {
	var tenants []string
	rows, err := o.b.db.QueryContext(ctx, paidSQL+`SELECT coalesce(p.payer, k.tenant) AS payer
		FROM entries e JOIN keys k ON k.key = e.key LEFT JOIN paid p ON p.tenant = k.tenant AND e.slot >= p.from_s AND e.slot < p.to_s `+statements+` AS s ON s.tenant = coalesce(p.payer, k.tenant)
		WHERE e.month = `+o.b.d.month("$1")+" AND "+condition+` AND k.meter <> '' AND EXISTS (SELECT 1 FROM subscriptions b WHERE b.tenant = k.tenant)
		GROUP BY 1 ORDER BY 1 LIMIT $2`, month.Unix(), maxTold+1, limit.MaxTenantLevels)
	err = each(rows, err, func(rows *sql.Rows) error {
		var t string
		err := rows.Scan(&t)
		tenants = append(tenants, t)
		return err
	})
	if err != nil {
		return fmt.Errorf("look for statements still to be made: %w", err)
	}
	if len(tenants) == 0 {
		return nil
	}
	more := ""
	if len(tenants) > maxTold {
		tenants, more = tenants[:maxTold], " and others"
	}
	return fmt.Errorf("%w: a statement is still to be made of usage of %s, of tenants %s%s: close their periods first, or say that nobody will",
		ledger.ErrRetention, month.Format("2006-01"), strings.Join(tenants, ", "), more)
}

// plan counts what would go.
func (o *Owner) plan(ctx context.Context, months []time.Time) (all []ledger.Archive, err error) {
	for _, m := range months {
		for _, fact := range facts {
			a := ledger.Archive{Month: m, Fact: fact, File: archive.NewHeader(fact, m, "").Name()}
			err := o.b.db.QueryRowContext(ctx, "SELECT count(*) FROM "+fact+" WHERE month = "+o.b.d.month("$1"), m.Unix()).Scan(&a.Rows)
			if err != nil {
				return nil, err
			}
			all = append(all, a)
		}
	}
	return all, nil
}

// facts are what is archived, in the order that it is.
var facts = []string{ledger.FactReports, ledger.FactEntries}

// patience is how long retention stands in the way of others at a time: what waits for
// its lock waits with it.
const (
	patience = 2 * time.Second
	tries    = 100
	pause    = 3 * time.Second
)

// patient runs do in a transaction, again while others do not let it: it gives way, so
// that nobody waits longer than patience for it.
func (o *Owner) patient(ctx context.Context, do func(*sql.Tx) error) error {
	for try := 1; ; try++ {
		err := o.b.write(ctx, func(tx *sql.Tx) error {
			if o.b.engine == Postgres {
				if _, err := tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL lock_timeout = '%dms'", patience.Milliseconds())); err != nil {
					return err
				}
			}
			return do(tx)
		})
		if try == tries || !inTheWay(err) {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// inTheWay reports whether a statement gave up a lock for others.
func inTheWay(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && (state.SQLState() == "55P03" || state.SQLState() == "40P01")
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// retire ends the intake of usage of those months, and of the next. A transaction that judged rows by them has
// committed, or finds them gone.
func (o *Owner) retire(ctx context.Context, r *Retention) error {
	until := r.Before.AddDate(0, retireFor, 0)
	d := o.b.d
	now, err := o.clock(ctx)
	if err != nil {
		return err
	}
	return o.patient(ctx, func(tx *sql.Tx) error {
		c := &change{Tx: tx, d: d, actor: r.Actor, now: now.UnixMilli()}
		if err := c.begin(ctx); err != nil {
			return err
		}
		if d.retireMonths != "" {
			if _, err := tx.ExecContext(ctx, d.retireMonths); err != nil {
				return err
			}
		}
		var oldest int64
		if err := tx.QueryRowContext(ctx, "SELECT coalesce("+d.seconds("min(month)")+", 0) FROM months").Scan(&oldest); err != nil {
			return err
		}
		retired, err := tx.ExecContext(ctx, "INSERT INTO retired (month, actor, at_ms) SELECT month, $2, $3 FROM months WHERE month < "+d.month("$1"),
			until.Unix(), r.Actor, c.now)
		if err != nil {
			return err
		}
		if n, err := retired.RowsAffected(); err != nil || n == 0 {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM months WHERE month < "+d.month("$1"), until.Unix()); err != nil {
			return err
		}
		if err := c.audit(ctx, "ledger.retire", "months before "+until.Format("2006-01"), map[string]any{"usage_from": ledger.Month(oldest).Format("2006-01")},
			map[string]any{"usage_from": until.Format("2006-01")}); err != nil {
			return err
		}
		return c.end(ctx)
	})
}

// folded waits until what was taken before it was called is folded.
func (o *Owner) folded(ctx context.Context, r *Retention) error {
	var report, correction int64
	last := "SELECT (SELECT coalesce(max(id), 0) FROM queue), (SELECT coalesce(max(number), 0) FROM corrections_queue)"
	if err := o.b.db.QueryRowContext(ctx, last).Scan(&report, &correction); err != nil {
		return err
	}
	for deadline := time.Now().Add(r.Wait); ; {
		if r.Fold != nil {
			if err := r.Fold(ctx); err != nil {
				return fmt.Errorf("fold: %w", err)
			}
		}
		var reports, corrections int64
		err := o.b.db.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM queue WHERE id <= $1), (SELECT count(*) FROM corrections_queue WHERE number <= $2)", report, correction).
			Scan(&reports, &corrections)
		if err != nil || reports+corrections == 0 {
			return err
		}
		if !time.Now().Before(deadline) {
			return fmt.Errorf("%w: %d reports and %d corrections wait to be folded, which may be of those months; a server folds them", ledger.ErrRetention, reports, corrections)
		}
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}
