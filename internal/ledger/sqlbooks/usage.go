package sqlbooks

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// wouldDeny holds for what only would have been denied; see ledger.WouldDeny.
const wouldDeny = "meter = '' AND attributes = '" + ledger.WouldDeny + "'"

// usageSQL is the query for a reading's roll-ups and entries. It selects a start, or a limit, meter and
// attributes, and pairs of halves for ledger.SumOf. Engines say the same, except how text is compared by its
// bytes.
func usageSQL(engine Engine, r *ledger.Reading) (text string, args []any) {
	arg := func(v any, kind string) string {
		args = append(args, v)
		return "CAST($" + strconv.Itoa(len(args)) + " AS " + kind + ")"
	}
	which := ""
	if r.Tenant != "" {
		which += " AND k.tenant = " + arg(r.Tenant, "text")
	}
	if r.Of != nil {
		which += " AND k.limit_name = " + arg(r.Of.Limit, "text") + " AND k.meter = " + arg(r.Of.Meter, "text") + " AND k.attributes = " + arg(r.Of.Attributes, "text")
	}
	which += versionsOf(r)
	const columns = "k.limit_name AS limit_name, k.meter AS meter, k.attributes AS attributes"
	with := ""
	parts := `SELECT r.hour AS start, ` + columns + `, r.admitted AS a, r.overage AS o, r.denied AS d
		FROM rollups r JOIN keys k ON k.key = r.key WHERE r.hour >= ` + arg(r.HourFrom, "bigint") + " AND r.hour < " + arg(r.HourTo, "bigint") + which
	if len(r.Cut) > 0 {
		cut := numbers(r.Cut)
		with = "WITH cut(hour) AS (VALUES (" + strings.ReplaceAll(cut, ",", "), (") + "))\n"
		// CROSS JOIN: from hours to entries, for SQLite cannot know how few hours there are.
		parts += " AND r.hour NOT IN (" + cut + `)
		UNION ALL SELECT e.slot, ` + columns + `, e.admitted, e.overage, e.denied
		FROM cut c CROSS JOIN entries e JOIN keys k ON k.key = e.key WHERE e.slot >= c.hour AND e.slot < c.hour + 3600
			AND e.slot >= ` + arg(r.From, "bigint") + " AND e.slot < " + arg(r.To, "bigint") + which
	}
	halves := func(count string) string {
		return fmt.Sprintf("CAST(sum((%s) >> 32) AS bigint), CAST(sum((%[1]s) & 4294967295) AS bigint)", count)
	}
	if !r.ByName {
		metered := func(count string) string { return "CASE WHEN meter <> '' THEN " + count + " ELSE 0 END" }
		return with + "SELECT start, " + halves(metered("a")) + ", " + halves(metered("o")) + ", " + halves("d") +
			" FROM (" + parts + ") AS parts WHERE NOT (" + wouldDeny + ") GROUP BY start", args
	}
	attributes := "CASE WHEN " + wouldDeny + " THEN attributes ELSE '' END"
	if r.ByAttributes {
		attributes = "attributes"
	}
	attributes = "CAST(" + attributes + " AS text) " + dialects[engine].bytewise
	return with + "SELECT limit_name, meter, attributes, " + halves("a") + ", " + halves("o") + ", " + halves("d") +
		" FROM (SELECT limit_name, meter, " + attributes + " AS attributes, a, o, d FROM (" + parts + ") AS parts) AS named" +
		" WHERE (limit_name, meter, attributes) > (" + arg(r.After.Limit, "text") + ", " + arg(r.After.Meter, "text") + ", " + arg(r.After.Attributes, "text") + ")" +
		" GROUP BY limit_name, meter, attributes ORDER BY limit_name, meter, attributes LIMIT " + arg(r.Limit+1, "bigint"), args
}

// versionsOf is the condition on keys k for the policy versions that are wanted.
func versionsOf(r *ledger.Reading) string {
	switch {
	case r.Version != 0:
		return " AND k.version = " + strconv.FormatInt(r.Version, 10)
	case len(r.Except) == 0:
		return ""
	}
	return " AND k.version NOT IN (" + numbers(r.Except) + ")"
}
