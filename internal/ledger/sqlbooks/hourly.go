package sqlbooks

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/f4ee788f/quota/internal/ledger"
)

// Newest is ledger.Books'.
func (b *Books) Newest(ctx context.Context) (block ledger.KeptBlockInfo, err error) {
	err = b.read(ctx, func(tx *sql.Tx) error {
		block, err = sealedBlock(ctx, tx, 0)
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

// Hourly is ledger.Books'.
func (b *Books) Hourly(ctx context.Context, q ledger.HourlyQuery) (all []ledger.HourlySum, err error) {
	if len(q.Edges) > ledger.MaxCut {
		return nil, fmt.Errorf("%w: there are %d edges; at most %d may be", ledger.ErrQuery, len(q.Edges), ledger.MaxCut)
	}
	err = b.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, b.d.hourly(&q), q.Tenant, q.Limit)
		return each(rows, err, func(rows *sql.Rows) error {
			var c ledger.HourlySum
			var high, low ledger.Sum
			if err := rows.Scan(&c.Start, &c.Limit, &c.Meter, &c.Version, &high.Admitted, &low.Admitted, &high.Overage, &low.Overage, &high.Denied, &low.Denied); err != nil {
				return err
			}
			c.Sum = ledger.SumOf(high, low)
			all = append(all, c)
			return nil
		})
	})
	return all, err
}

// hourly is the query. Numbers stand in its text, as in breakdowns.
func (d *dialect) hourly(q *ledger.HourlyQuery) string {
	list := func(numbers []int64, each string) string {
		all := make([]string, len(numbers))
		for i, n := range numbers {
			all[i] = fmt.Sprintf(each, n)
		}
		return strings.Join(all, ", ")
	}
	which := " WHERE k.tenant = $1 AND (CAST($2 AS text) = '' OR k.limit_name = $2) AND NOT (k.meter = '' AND k.attributes = '" + ledger.WouldDeny + "')"
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
	parts := []string{"SELECT k.limit_name, k.meter, k.version, CAST(" + since("r.hour") + " AS bigint) AS start, r.admitted, r.overage, r.denied FROM keys k JOIN rollups r ON r.key = k.key" +
		which + fmt.Sprintf(" AND r.hour >= %d AND r.hour < %d", from, to)}
	with := ""
	if len(cut) > 0 {
		parts[0] += " AND r.hour NOT IN (" + list(cut, "%d") + ")"
		with = "WITH cut(hour) AS (VALUES " + list(cut, "(CAST(%d AS bigint))") + ") "
		parts = append(parts, "SELECT k.limit_name, k.meter, k.version, CAST("+since("e.slot")+` AS bigint) AS start, e.admitted, e.overage, e.denied FROM cut c CROSS JOIN keys k
			JOIN entries e ON e.key = k.key AND e.slot >= c.hour AND e.slot < c.hour + 3600`+which+" AND e.slot >= "+strconv.FormatInt(q.From, 10)+" AND e.slot < "+strconv.FormatInt(q.To, 10)+d.during(max(q.From, cut[0]), min(q.To, cut[len(cut)-1]+3600)))
	}
	half := func(name string) string {
		return "CAST(sum(" + name + " >> 32) AS bigint), CAST(sum(" + name + " & 4294967295) AS bigint)"
	}
	return with + "SELECT start, limit_name, meter, version, " + half("admitted") + ", " + half("overage") + ", " + half("denied") +
		" FROM (" + strings.Join(parts, " UNION ALL ") + ") AS parts GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
}
