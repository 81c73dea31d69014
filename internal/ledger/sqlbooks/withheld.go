package sqlbooks

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Withheld is ledger.Books'.
func (b *Books) Withheld(ctx context.Context, of []ledger.Part) ([]ledger.Withheld, error) {
	parts, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	// Units are added up in halves: their sum may be more than a bigint holds. All conditions are of the index
	// quarantine_tenant. Denials alone, of no units, are on no statement. An earlier release's rows may be of any.
	const open = ` LEFT JOIN resolutions r ON r.quarantined = q.id WHERE r.quarantined IS NULL AND q.row_number >= 0
		AND q.reason NOT LIKE '` + ledger.BarredPrefix + `%' AND (q.units <> 0 OR q.units IS NULL) `
	rows, err := b.db.QueryContext(ctx, `SELECT q.tenant, count(*), CAST(sum(q.units >> 32) AS bigint), CAST(sum(q.units & 4294967295) AS bigint)
		FROM `+b.d.parts+` JOIN quarantine q ON q.tenant = s.tenant AND q.slot >= s.begins AND q.slot < s.ends`+open+`GROUP BY q.tenant
		UNION ALL SELECT '', count(*), 0, 0 FROM quarantine q`+open+`AND q.tenant IS NULL HAVING count(*) > 0 ORDER BY 1`, string(parts))
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
