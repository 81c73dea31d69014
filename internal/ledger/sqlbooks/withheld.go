package sqlbooks

import (
	"context"
	"database/sql"

	"github.com/f4ee788f/quota/internal/ledger"
)

// Withheld is ledger.Books'.
func (b *Books) Withheld(ctx context.Context, tenants []string, before int64) ([]ledger.Withheld, error) {
	// Units are added up in halves: their sum may be more than a bigint holds. Both conditions are of the index quarantine_tenant.
	const of = ` FROM quarantine q LEFT JOIN resolutions r ON r.quarantined = q.id WHERE r.quarantined IS NULL AND q.row_number >= 0
		AND q.reason NOT LIKE '` + ledger.BarredPrefix + `%' AND `
	rows, err := b.db.QueryContext(ctx, `SELECT q.tenant, count(*), CAST(sum(q.units >> 32) AS bigint), CAST(sum(q.units & 4294967295) AS bigint)`+of+
		b.d.in("q.tenant", "$1")+` AND q.slot < $2 GROUP BY q.tenant
		UNION ALL SELECT '', count(*), 0, 0`+of+`q.tenant IS NULL HAVING count(*) > 0 ORDER BY 1`, b.d.list(tenants), before)
	var all []ledger.Withheld
	err = each(rows, err, func(rows *sql.Rows) error {
		var w ledger.Withheld
		var high, low ledger.Sum
		err := rows.Scan(&w.Tenant, &w.Rows, &high.Admitted, &low.Admitted)
		w.Units = ledger.SumOf(high, low).Admitted
		all = append(all, w)
		return err
	})
	return all, b.classify(err)
}
