package sqlbooks

// Engine is what is behind the database.
type Engine uint8

// The engines there is a schema for.
const (
	SQLite Engine = iota + 1
	Postgres
)

// dialect is what the engines say differently.
type dialect struct {
	// key selects a key's bytes from a column.
	key func(column string) string
	// runs are rows (agent, epoch, first, last) of the JSON list in $1, notes rows
	// (agent, epoch, tenant).
	runs, notes string
	// unrolled selects hour, key, how many roll-ups there are (0 or 1), their counts,
	// how many entries, and their sums as pairs for ledger.SumOf, of the hours from $1
	// to before $2 where the two differ.
	unrolled string
	// months are the first seconds of the months that there is room for.
	months string
}

// maxSum is ledger.MaxSum.
const maxSum = "9223372036854775807"

// merged puts roll-ups and entries of the hours from $1 to before $2 side by side.
const merged = `(
	SELECT key, hour, 1 AS has, admitted AS ha, overage AS ho, denied AS hd, 0 AS n, 0 AS a, 0 AS o, 0 AS d
	FROM rollups WHERE hour >= $1 AND hour < $2
	UNION ALL
	SELECT key, slot - slot % 3600, 0, 0, 0, 0, 1, admitted, overage, denied
	FROM entries WHERE slot >= $1 AND slot < $2) AS both_`

var dialects = map[Engine]*dialect{
	Postgres: {
		key:   func(column string) string { return "uuid_send(" + column + ")" },
		runs:  "jsonb_to_recordset($1::jsonb) AS s (agent text, epoch bigint, first bigint, last bigint)",
		notes: "jsonb_to_recordset($1::jsonb) AS s (agent text, epoch bigint, tenant text)",
		unrolled: `SELECT hour, uuid_send(key), max(has), sum(ha)::bigint, sum(ho)::bigint, sum(hd)::bigint, least(sum(n), 1),
				0, ` + bounded("a") + `::bigint, 0, ` + bounded("o") + `::bigint, 0, ` + bounded("d") + `::bigint
			FROM ` + merged + ` GROUP BY key, hour
			HAVING max(has) <> least(sum(n), 1) OR sum(ha) <> ` + bounded("a") + `
				OR sum(ho) <> ` + bounded("o") + ` OR sum(hd) <> ` + bounded("d") + ` ORDER BY hour, key`,
		months: "SELECT extract(epoch FROM month)::bigint FROM months ORDER BY month",
	},
	SQLite: {
		key: func(column string) string { return column },
		runs: `(SELECT json_extract(value, '$.agent') AS agent, json_extract(value, '$.epoch') AS epoch,
			json_extract(value, '$.first') AS first, json_extract(value, '$.last') AS last FROM json_each($1)) AS s`,
		notes: `(SELECT json_extract(value, '$.agent') AS agent, json_extract(value, '$.epoch') AS epoch,
			json_extract(value, '$.tenant') AS tenant FROM json_each($1)) AS s`,
		unrolled: `SELECT hour, key, max(has), sum(ha), sum(ho), sum(hd), min(sum(n), 1),
				sum(a >> 32), sum(a & 4294967295), sum(o >> 32), sum(o & 4294967295), sum(d >> 32), sum(d & 4294967295)
			FROM ` + merged + ` GROUP BY key, hour
			HAVING max(has) <> min(sum(n), 1) OR ` + unequal("ha", "a") + ` OR ` + unequal("ho", "o") + ` OR ` + unequal("hd", "d") + `
			ORDER BY hour, key`,
		months: "SELECT month FROM months ORDER BY month",
	},
}

// bounded is a sum in Postgres that ends at ledger.MaxSum, and below at its opposite.
func bounded(count string) string {
	return "greatest(least(sum(" + count + "), " + maxSum + "), -" + maxSum + ")"
}

// unequal compares a roll-up's count with the sum of its entries' without adding them
// up, which may overflow: by their halves. A sum above ledger.MaxSum is unequal.
func unequal(has, count string) string {
	return `sum(` + has + `) >> 32 <> sum(` + count + ` >> 32) + (sum(` + count + ` & 4294967295) >> 32)
		OR sum(` + has + `) & 4294967295 <> sum(` + count + ` & 4294967295) & 4294967295`
}
