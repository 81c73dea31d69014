package sqliteledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Usage is ledger.Store's. A read transaction is one snapshot.
func (s *Store) Usage(ctx context.Context, q ledger.Query) (u ledger.Usage, err error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return u, classify(err)
	}
	defer func() { err = classify(errors.Join(err, tx.Rollback())) }()
	first, last, archived, err := readBounds(ctx, tx)
	if err != nil {
		return u, err
	}
	r, err := ledger.NewReading(q, first, last)
	if err == nil {
		err = r.NeedsEntries(archived)
	}
	if err != nil {
		return u, err
	}
	if err := readSums(ctx, tx, r); err != nil {
		return u, err
	}
	if err := readUnfolded(ctx, tx, r); err != nil {
		return u, err
	}
	u = r.Usage()
	u.Complete, u.Lagging, err = s.completeness(ctx, tx, r)
	return u, err
}

// readBounds returns the first and the last second that usage can be in, and before
// which entries are archived.
func readBounds(ctx context.Context, tx *sql.Tx) (first, last, archived int64, err error) {
	w, err := readWindow(ctx, tx)
	if err != nil {
		return 0, 0, 0, err
	}
	var hour, month sql.NullInt64
	err = tx.QueryRowContext(ctx, "SELECT (SELECT min(hour) FROM rollups), (SELECT max(month) FROM archives)").Scan(&hour, &month)
	if err != nil {
		return 0, 0, 0, err
	}
	if hour.Valid {
		w.From = min(w.From, hour.Int64)
	}
	if month.Valid {
		archived = ledger.Month(month.Int64).AddDate(0, 1, 0).Unix()
	}
	return w.From, w.To - 1, archived, nil
}

// wouldDeny holds for what only would have been denied; see ledger.WouldDeny.
const wouldDeny = "meter = '' AND attributes = '" + ledger.WouldDeny + "'"

func readSums(ctx context.Context, tx *sql.Tx, r *ledger.Reading) error {
	cut, err := json.Marshal(append([]int64{}, r.Cut...))
	if err != nil {
		return err
	}
	tenant := ""
	if r.Tenant != "" {
		tenant = " AND k.tenant = ?6"
	}
	of := ledger.Names{}
	if r.Of != nil {
		of = *r.Of
		tenant += " AND (k.limit_name, k.meter, k.attributes) = (?7, ?8, ?9)"
	}
	which := tenant + versions(r)
	parts := `(SELECT r.hour AS start, k.limit_name, k.meter, k.attributes, r.admitted, r.overage, r.denied
		FROM rollups r JOIN keys k ON k.key = r.key
		WHERE r.hour >= ?1 AND r.hour < ?2` + which
	if len(r.Cut) > 0 {
		// CROSS JOIN: from hours to entries, for SQLite cannot know how few hours there are.
		parts += ` AND r.hour NOT IN (SELECT value FROM json_each(?3))
		UNION ALL
		SELECT e.slot, k.limit_name, k.meter, k.attributes, e.admitted, e.overage, e.denied
		FROM json_each(?3) h CROSS JOIN entries e ON e.slot >= h.value AND e.slot < h.value + 3600 JOIN keys k ON k.key = e.key
		WHERE e.slot >= ?4 AND e.slot < ?5` + which
	}
	parts += ")"
	args := []any{r.HourFrom, r.HourTo, string(cut), r.From, r.To, r.Tenant, of.Limit, of.Meter, of.Attributes}
	var high, low ledger.Sum
	counts := []any{&high.Admitted, &low.Admitted, &high.Overage, &low.Overage, &high.Denied, &low.Denied}
	if !r.ByName {
		rows, err := tx.QueryContext(ctx, `SELECT start, `+halves("CASE WHEN meter <> '' THEN admitted ELSE 0 END")+`,
			`+halves("CASE WHEN meter <> '' THEN overage ELSE 0 END")+`, `+halves("denied")+` FROM `+parts+`
			WHERE coalesce(?3, ?4, ?5, ?6, ?7, ?8, ?9) IS NOT NULL AND NOT (`+wouldDeny+`) GROUP BY start`, args...)
		return each(rows, err, func(row scanner) error {
			var start int64
			if err := row.Scan(append([]any{&start}, counts...)...); err != nil {
				return err
			}
			r.AddTime(start, ledger.SumOf(high, low))
			return nil
		})
	}
	names := "limit_name, meter, CASE WHEN " + wouldDeny + " THEN attributes ELSE '' END"
	if r.ByAttributes {
		names = "limit_name, meter, attributes"
	}
	rows, err := tx.QueryContext(ctx, `SELECT `+names+`, `+halves("admitted")+`, `+halves("overage")+`, `+halves("denied")+` FROM `+parts+`
		WHERE coalesce(?3, ?4, ?5, ?6, ?7, ?8, ?9) IS NOT NULL AND (`+names+`) > (?10, ?11, ?12) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT ?13`,
		append(args, r.After.Limit, r.After.Meter, r.After.Attributes, r.Limit+1)...)
	return each(rows, err, func(row scanner) error {
		var n ledger.Names
		if err := row.Scan(append([]any{&n.Limit, &n.Meter, &n.Attributes}, counts...)...); err != nil {
			return err
		}
		r.AddNames(n, ledger.SumOf(high, low))
		return nil
	})
}

// halves adds up a count for ledger.SumOf: SQLite's sum fails where it overflows.
func halves(count string) string {
	return "sum((" + count + ") >> 32), sum((" + count + ") & 4294967295)"
}

// versions is the condition on keys k for the policy versions that are wanted. They
// are numbers, so that they stand in the text: a list of parameters differs by engine.
func versions(r *ledger.Reading) string {
	switch {
	case r.Version != 0:
		return " AND k.version = " + strconv.FormatInt(r.Version, 10)
	case len(r.Except) == 0:
		return ""
	}
	var b strings.Builder
	b.WriteString(" AND k.version NOT IN (")
	for i, v := range r.Except {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(v, 10))
	}
	b.WriteByte(')')
	return b.String()
}

func readUnfolded(ctx context.Context, tx *sql.Tx, r *ledger.Reading) error {
	rows, err := tx.QueryContext(ctx, pendingQuery)
	err = each(rows, err, func(row scanner) error {
		p, err := scanPending(row)
		if err != nil {
			return err
		}
		return r.AddPending(&p)
	})
	if err != nil {
		return err
	}
	corrections, err := readCorrections(ctx, tx.QueryContext, 0)
	for i := range corrections {
		err = errors.Join(err, r.AddCorrection(&corrections[i]))
	}
	return err
}

func (s *Store) completeness(ctx context.Context, tx *sql.Tx, r *ledger.Reading) (time.Time, []string, error) {
	now := s.now()
	var settled bool
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM frontier WHERE seq > 0)").Scan(&settled); err != nil {
		return time.Time{}, nil, err
	}
	var epochs []ledger.Frontier
	rows, err := tx.QueryContext(ctx, "SELECT "+frontierColumns+" FROM frontier WHERE state <> 'closed' AND seen_ms > ?",
		now.Add(-ledger.SilentAfter).UnixMilli())
	err = each(rows, err, func(row scanner) error {
		f, err := scanFrontier(row)
		epochs = append(epochs, f)
		return err
	})
	if err != nil {
		return time.Time{}, nil, err
	}
	folded := map[ledger.Epoch]bool{}
	if r.Tenant != "" {
		rows, err = tx.QueryContext(ctx, "SELECT agent, epoch FROM touched WHERE tenant = ?", r.Tenant)
	} else {
		rows, err = tx.QueryContext(ctx, ledger.TouchedByAny)
	}
	err = each(rows, err, func(row scanner) error {
		var e ledger.Epoch
		err := row.Scan(&e.Agent, &e.Epoch)
		folded[e] = true
		return err
	})
	if err != nil {
		return time.Time{}, nil, err
	}
	touched := func(e ledger.Epoch) bool { return folded[e] || r.Touched(e) }
	complete, lagging := ledger.Completeness(epochs, touched, settled, now, s.options.Slot)
	return complete, lagging, nil
}

// Standing is ledger.Store's.
func (s *Store) Standing(ctx context.Context, epochs []ledger.Epoch) (st ledger.Standing, err error) {
	st.Ledger = s.opened
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return st, classify(err)
	}
	defer func() { _ = tx.Rollback() }() // it only read
	for _, e := range epochs {
		f, err := scanFrontier(tx.QueryRowContext(ctx, "SELECT "+frontierColumns+" FROM frontier WHERE agent = ? AND epoch = ?", e.Agent, e.Epoch))
		if errors.Is(err, sql.ErrNoRows) {
			f, err = ledger.Frontier{Epoch: e, State: ledger.StateOpen}, nil
		}
		if err != nil {
			return st, classify(err)
		}
		st.Frontiers = append(st.Frontiers, f)
	}
	return st, nil
}

// Agents is ledger.Store's.
func (s *Store) Agents(ctx context.Context, after string, n int) ([]ledger.AgentState, error) {
	agent, epoch := ledger.ParseCursor(after)
	rows, err := s.db.QueryContext(ctx, "SELECT "+frontierColumns+` FROM frontier f
		WHERE (agent > ?1 OR agent = ?1 AND epoch < ?2)
		AND (state <> 'closed' OR epoch = (SELECT max(epoch) FROM frontier g WHERE g.agent = f.agent))
		ORDER BY agent, epoch DESC LIMIT ?3`, agent, epoch, n)
	now := s.now()
	var states []ledger.AgentState
	err = each(rows, err, func(row scanner) error {
		f, err := scanFrontier(row)
		states = append(states, f.Agent(now))
		return err
	})
	return states, classify(err)
}

// each calls do for every row and closes them.
func each(rows *sql.Rows, err error, do func(scanner) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
