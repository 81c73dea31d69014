package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Newest is ledger.Books'.
func (b *Books) Newest(ctx context.Context) (block ledger.KeptBlockInfo, err error) {
	err = b.read(ctx, func(tx *sql.Tx) error {
		block, err = sealedBlock(ctx, tx, 0)
		return err
	})
	return block, err
}

// Block is ledger.Books'.
func (b *Books) Block(ctx context.Context, height int64) (block ledger.KeptBlockInfo, err error) {
	if height <= 0 {
		return block, fmt.Errorf("%w: block %d", ledger.ErrNotFound, height)
	}
	err = b.read(ctx, func(tx *sql.Tx) error {
		block, err = sealedBlock(ctx, tx, height)
		return err
	})
	return block, err
}

// After is ledger.Books'.
func (b *Books) After(ctx context.Context, height int64) (block ledger.KeptBlockInfo, err error) {
	err = b.read(ctx, func(tx *sql.Tx) error {
		var next sql.NullInt64
		if err := tx.QueryRowContext(ctx, "SELECT min(height) FROM blocks WHERE height > $1", height).Scan(&next); err != nil || !next.Valid {
			return err
		}
		block, err = sealedBlock(ctx, tx, next.Int64)
		return err
	})
	return block, err
}

// Changed is ledger.Books'.
func (b *Books) Changed(ctx context.Context, since, height int64, after string, n int) (all []ledger.ChangedTenant, err error) {
	err = b.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT k.tenant, min(e.slot) FROM entries e JOIN keys k ON k.key = e.key
			WHERE e.height > $1 AND e.height <= $2 AND k.tenant > $3 GROUP BY k.tenant ORDER BY k.tenant LIMIT $4`, since, height, after, n)
		return each(rows, err, func(rows *sql.Rows) error {
			var c ledger.ChangedTenant
			err := rows.Scan(&c.Tenant, &c.First)
			all = append(all, c)
			return err
		})
	})
	return all, err
}

// Added is ledger.Books'.
func (b *Books) Added(ctx context.Context, since ledger.KeptBlockInfo, height int64, n int) (all []ledger.AddedSum, ok bool, err error) {
	err = b.read(ctx, func(tx *sql.Tx) error {
		if since.Height > 0 { // a ledger that was restored may have another block there, or none
			was, err := sealedBlock(ctx, tx, since.Height)
			switch {
			case errors.Is(err, ledger.ErrNotFound) || err == nil && was.Hash != since.Hash:
				return nil
			case err != nil:
				return err
			}
		}
		rows, err := tx.QueryContext(ctx, addedSQL, since.Height, height, n+1)
		ok = true
		return each(rows, err, func(rows *sql.Rows) error {
			var a ledger.AddedSum
			var high, low ledger.Sum
			err := rows.Scan(&a.Tenant, &a.Slot, &a.Limit, &a.Meter, &a.Version, &a.Plan, &high.Admitted, &low.Admitted, &high.Overage, &low.Overage, &high.Denied, &low.Denied)
			a.Sum = ledger.SumOf(high, low)
			all = append(all, a)
			return err
		})
	})
	if err != nil || !ok || len(all) > n {
		return nil, false, err
	}
	return all, true, nil
}

// addedSQL is the query of Added: of the blocks above $1 up to $2.
const addedSQL = `SELECT k.tenant, e.slot, k.limit_name, k.meter, k.version, k.plan, CAST(sum(e.admitted >> 32) AS bigint), CAST(sum(e.admitted & 4294967295) AS bigint),
		CAST(sum(e.overage >> 32) AS bigint), CAST(sum(e.overage & 4294967295) AS bigint), CAST(sum(e.denied >> 32) AS bigint), CAST(sum(e.denied & 4294967295) AS bigint)
	FROM entries e JOIN keys k ON k.key = e.key WHERE e.height > $1 AND e.height <= $2 AND NOT (k.meter = '' AND k.attributes = '` + ledger.WouldDeny + `')
	GROUP BY k.tenant, e.slot, k.limit_name, k.meter, k.version, k.plan ORDER BY k.tenant LIMIT $3`

// Hourly is ledger.Books'.
func (b *Books) Hourly(ctx context.Context, q ledger.HourlyQuery) (out ledger.HourlySums, err error) {
	if len(q.Edges) > ledger.MaxCut {
		return out, fmt.Errorf("%w: there are %d edges; at most %d may be", ledger.ErrQuery, len(q.Edges), ledger.MaxCut)
	}
	err = b.read(ctx, func(tx *sql.Tx) error {
		if out.Block, err = sealedBlock(ctx, tx, 0); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, b.d.hourly(&q), b.d.list(q.Tenants), q.Limit)
		return each(rows, err, func(rows *sql.Rows) error {
			var c ledger.HourlySum
			var high, low ledger.Sum
			if err := rows.Scan(&c.Tenant, &c.Start, &c.Limit, &c.Meter, &c.Version, &c.Plan, &high.Admitted, &low.Admitted, &high.Overage, &low.Overage, &high.Denied, &low.Denied); err != nil {
				return err
			}
			c.Sum = ledger.SumOf(high, low)
			out.Sums = append(out.Sums, c)
			return nil
		})
	})
	return out, err
}

// HourlySQL is the query of Hourly, for tests of how it is planned.
func HourlySQL(engine Engine, q *ledger.HourlyQuery) string { return dialects[engine].hourly(q) }

// hourly is the query. Numbers stand in its text, as in breakdowns. It adds up by key first,
// as they do: names are longer to tell apart.
func (d *dialect) hourly(q *ledger.HourlyQuery) string {
	list := func(numbers []int64, each string) string {
		all := make([]string, len(numbers))
		for i, n := range numbers {
			all[i] = fmt.Sprintf(each, n)
		}
		return strings.Join(all, ", ")
	}
	which := " WHERE " + d.in("k.tenant", "$1") + " AND (CAST($2 AS text) = '' OR k.limit_name = $2) AND NOT (k.meter = '' AND k.attributes = '" + ledger.WouldDeny + "')"
	if q.Metered {
		which += " AND k.meter <> ''"
	}
	if len(q.Except) > 0 {
		which += " AND k.version NOT IN (" + list(q.Except, "%d") + ")"
	}
	from, to, cut := q.Hours()
	since := func(slot string) string {
		text := "0"
		for _, edge := range q.Edges { // ascending: the last that holds is asked first
			text = fmt.Sprintf("CASE WHEN %s >= %d THEN %d ELSE %s END", slot, edge, edge, text)
		}
		return text
	}
	parts := []string{"SELECT r.key AS key, CAST(" + since("r.hour") + " AS bigint) AS start, r.admitted AS a, r.overage AS o, r.denied AS d FROM keys k JOIN rollups r ON r.key = k.key" +
		which + fmt.Sprintf(" AND r.hour >= %d AND r.hour < %d", from, to)}
	with := ""
	if len(cut) > 0 {
		parts[0] += " AND r.hour NOT IN (" + list(cut, "%d") + ")"
		with = "WITH cut(hour) AS (VALUES " + list(cut, "(CAST(%d AS bigint))") + ") "
		parts = append(parts, "SELECT e.key AS key, CAST("+since("e.slot")+` AS bigint) AS start, e.admitted AS a, e.overage AS o, e.denied AS d FROM cut c CROSS JOIN keys k
			JOIN entries e ON e.key = k.key AND e.slot >= c.hour AND e.slot < c.hour + 3600`+which+" AND e.slot >= "+strconv.FormatInt(q.From, 10)+" AND e.slot < "+strconv.FormatInt(q.To, 10)+d.during(max(q.From, cut[0]), min(q.To, cut[len(cut)-1]+3600)))
	}
	return with + "SELECT k.tenant, b.start, k.limit_name, k.meter, k.version, k.plan, " + d.totals("") +
		" FROM (SELECT key, start, " + d.sums + " FROM (" + strings.Join(parts, " UNION ALL ") + ") AS parts GROUP BY key, start) AS b JOIN keys k ON k.key = b.key" +
		" GROUP BY k.tenant, b.start, k.limit_name, k.meter, k.version, k.plan ORDER BY 1, 2, 3, 4, 5, 6"
}
