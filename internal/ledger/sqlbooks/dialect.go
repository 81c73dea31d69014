package sqlbooks

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

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
	// (agent, epoch, tenant), parts rows (tenant, begins, ends).
	runs, notes, parts string
	// unrolled selects hours from $1 to before $2 whose roll-ups differ from their entries. It gives hour, key,
	// how many roll-ups there are (0 or 1), their counts, how many entries, and the entries' sums as pairs for
	// ledger.SumOf.
	unrolled string
	// sums adds up a, o and d of parts, in columns that resums and totals add up again. resums keeps them as
	// they are, totals makes pairs for ledger.SumOf of them, and peak is the greatest a. Where a condition is
	// given, a and o are of rows for which it holds. most is an order of the totals' pairs: by admitted,
	// overage or denied.
	sums           string
	resums, totals func(condition string) string
	peak           string
	any            func(condition string) string // whether the totals hold anything
	bytewise       string                        // makes text be compared by its bytes
	most           func(count string) string
	// attribute is the value of an attribute of keys k, empty if it has none. find is the place of one text in
	// another, 0 for none.
	attribute func(name string) string
	find      func(text, part string) string
	// literal is a key's bytes.
	literal func(ledger.Key) string
	// during leaves out the partitions of entries e that have no slots in [from, to): a
	// condition to add, empty where there are none.
	during func(from, to int64) string
	// months are the first seconds of the months that there is room for.
	months string
	// seconds selects a month's first second from a column, month makes a column's value
	// of the parameter that is it.
	seconds, month func(string) string
	// in holds for a column that is one of a parameter's texts; list makes the parameter.
	in   func(column, param string) string
	list func([]string) any
	// inNumbers and numbers are the same of numbers.
	inNumbers func(column, param string) string
	numbers   func([]int64) any
	// sameMonth has reports r be looked for in the partition that their row of the queue q names.
	sameMonth string
	// holdMonths keeps months from being retired until the transaction ends. retireMonths waits for
	// transactions that hold them. Both are empty where there is one writer at a time anyway.
	holdMonths, retireMonths string
}

// monthsLock is held, shared, by transactions that store what they judged by the months that there are.
// Retention holds it alone. Stores of reports name it as well.
const monthsLock = "hashtextextended('quota.months.' || current_schema(), 0)"

// maxSum is ledger.MaxSum.
const maxSum = "9223372036854775807"

// Added is the new value of a count whose row is in the table already, in SQL of both engines. It is the sum,
// within ledger.MaxSum either way. The outer CASE keeps the differences of the inner ones within a bigint.
func Added(table, count string) string {
	return strings.NewReplacer("WAS", table+"."+count, "MORE", "excluded."+count, "MOST", maxSum).Replace(`CASE
		WHEN MORE > 0 THEN CASE WHEN WAS > MOST - MORE THEN MOST ELSE WAS + MORE END
		WHEN MORE < 0 THEN CASE WHEN WAS < -MOST - MORE THEN -MOST ELSE WAS + MORE END
		ELSE WAS END`)
}

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
		parts: `jsonb_to_recordset($1::jsonb) AS s (tenant text COLLATE "C", begins bigint, ends bigint)`,
		unrolled: `SELECT hour, uuid_send(key), max(has), sum(ha)::bigint, sum(ho)::bigint, sum(hd)::bigint, least(sum(n), 1),
				0, ` + bounded("a") + `::bigint, 0, ` + bounded("o") + `::bigint, 0, ` + bounded("d") + `::bigint
			FROM ` + merged + ` GROUP BY key, hour
			HAVING max(has) <> least(sum(n), 1) OR sum(ha) <> ` + bounded("a") + `
				OR sum(ho) <> ` + bounded("o") + ` OR sum(hd) <> ` + bounded("d") + ` ORDER BY hour, key`,
		sums: "sum(a) AS a, sum(o) AS o, sum(d) AS d",
		resums: func(condition string) string {
			return "sum(" + where(condition, "b.a") + ") AS a, sum(" + where(condition, "b.o") + ") AS o, sum(b.d) AS d"
		},
		totals: func(condition string) string {
			pair := func(column, count string) string {
				return "CAST(0 AS bigint) AS " + column + "h, " + bounded(count) + "::bigint AS " + column + "l"
			}
			return pair("a", where(condition, "b.a")) + ", " + pair("o", where(condition, "b.o")) + ", " + pair("d", "b.d")
		},
		any: func(condition string) string {
			return "sum(" + where(condition, "b.a") + ") <> 0 OR sum(" + where(condition, "b.o") + ") <> 0 OR sum(b.d) <> 0"
		},
		bytewise: `COLLATE "C"`,
		peak:     "greatest(least(max(b.a), " + maxSum + "), -" + maxSum + ")::bigint",
		most:     func(count string) string { return count[:1] + "l" },
		attribute: func(name string) string {
			return "split_part(split_part('" + sep + "' || k.attributes, '" + sep + name + "=', 2), '" + sep + "', 1)"
		},
		find:    func(text, part string) string { return "strpos(" + text + ", " + part + ")" },
		literal: func(k ledger.Key) string { return fmt.Sprintf("'%x'::uuid", k[:]) },
		during: func(from, to int64) string {
			date := func(t int64) string { return ledger.Month(t).Format("'2006-01-02'") }
			return " AND e.month >= " + date(from) + " AND e.month <= " + date(to-1)
		},
		months:  "SELECT extract(epoch FROM month)::bigint FROM months ORDER BY month",
		seconds: func(column string) string { return "extract(epoch FROM " + column + ")::bigint" },
		month:   func(param string) string { return "(to_timestamp(" + param + "::bigint) AT TIME ZONE 'UTC')::date" },
		// The planner knows an array's length. So one tenant's rows are read by their keys, and many tenants'
		// by their hours.
		in:           func(column, param string) string { return column + " = ANY(CAST(" + param + " AS text[]))" },
		list:         func(all []string) any { return all },
		inNumbers:    func(column, param string) string { return column + " = ANY(CAST(" + param + " AS bigint[]))" },
		numbers:      func(all []int64) any { return all },
		sameMonth:    "r.month = q.month AND ",
		holdMonths:   "SELECT pg_advisory_xact_lock_shared(" + monthsLock + ")",
		retireMonths: "SELECT pg_advisory_xact_lock(" + monthsLock + ")",
	},
	SQLite: {
		key: func(column string) string { return column },
		runs: `(SELECT json_extract(value, '$.agent') AS agent, json_extract(value, '$.epoch') AS epoch,
			json_extract(value, '$.first') AS first, json_extract(value, '$.last') AS last FROM json_each($1)) AS s`,
		notes: `(SELECT json_extract(value, '$.agent') AS agent, json_extract(value, '$.epoch') AS epoch,
			json_extract(value, '$.tenant') AS tenant FROM json_each($1)) AS s`,
		parts: `(SELECT json_extract(value, '$.tenant') AS tenant, json_extract(value, '$.begins') AS begins,
			json_extract(value, '$.ends') AS ends FROM json_each($1)) AS s`,
		unrolled: `SELECT hour, key, max(has), sum(ha), sum(ho), sum(hd), min(sum(n), 1),
				sum(a >> 32), sum(a & 4294967295), sum(o >> 32), sum(o & 4294967295), sum(d >> 32), sum(d & 4294967295)
			FROM ` + merged + ` GROUP BY key, hour
			HAVING max(has) <> min(sum(n), 1) OR ` + unequal("ha", "a") + ` OR ` + unequal("ho", "o") + ` OR ` + unequal("hd", "d") + `
			ORDER BY hour, key`,
		sums: halves("a", "a") + ", " + halves("o", "o") + ", " + halves("d", "d"),
		resums: func(condition string) string {
			return again(condition, "a") + ", " + again(condition, "o") + ", " + again("", "d")
		},
		totals: func(condition string) string {
			return again(condition, "a") + ", " + again(condition, "o") + ", " + again("", "d")
		},
		any: func(condition string) string {
			whole := func(condition, column string) string {
				return "(sum(" + where(condition, "b."+column+"h") + ") << 32) + sum(" + where(condition, "b."+column+"l") + ") <> 0"
			}
			return whole(condition, "a") + " OR " + whole(condition, "o") + " OR " + whole("", "d")
		},
		bytewise: "COLLATE BINARY",
		peak:     "max(" + joined("b.ah", "b.al") + ")",
		most:     func(count string) string { return joined(count[:1]+"h", count[:1]+"l") },
		attribute: func(name string) string {
			// From behind the name to the next separator.
			whole, key := "('"+sep+"' || k.attributes || '"+sep+"')", "'"+sep+name+"='"
			rest := "substr(" + whole + ", instr(" + whole + ", " + key + ") + length(" + key + "))"
			return "CASE WHEN instr(" + whole + ", " + key + ") = 0 THEN '' ELSE substr(" + rest + ", 1, instr(" + rest + ", '" + sep + "') - 1) END"
		},
		find:      func(text, part string) string { return "instr(" + text + ", " + part + ")" },
		literal:   func(k ledger.Key) string { return fmt.Sprintf("x'%x'", k[:]) },
		during:    func(int64, int64) string { return "" },
		months:    "SELECT month FROM months ORDER BY month",
		seconds:   func(column string) string { return column },
		month:     func(param string) string { return param },
		in:        func(column, param string) string { return column + " IN (SELECT value FROM json_each(" + param + "))" },
		list:      func(all []string) any { return listed(all) },
		inNumbers: func(column, param string) string { return column + " IN (SELECT value FROM json_each(" + param + "))" },
		numbers:   func(all []int64) any { return listed(all) },
	},
}

// listed is a list as SQLite's json_each reads it.
func listed(all any) string {
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // strings or numbers
	}
	return string(text)
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

// joined is a sum of its halves in SQLite, which ends where ledger.SumOf does: their plain
// sum would come round above it.
func joined(high, low string) string {
	carried := "(" + high + " + (" + low + " >> 32))"
	return "CASE WHEN " + carried + " > 2147483647 THEN " + maxSum + " WHEN " + carried + " < -2147483647 THEN -" + maxSum +
		" ELSE (" + carried + " << 32) | (" + low + " & 4294967295) END"
}

// sep is ledger.AttributeSep.
const sep = ledger.AttributeSep

// where is a count of the rows for which a condition holds; of all without one.
func where(condition, count string) string {
	if condition == "" {
		return count
	}
	return "CASE WHEN " + condition + " THEN " + count + " ELSE 0 END"
}

// halves adds up a count in two halves, and again adds up such sums.
func halves(count, column string) string {
	return "sum(" + count + " >> 32) AS " + column + "h, sum(" + count + " & 4294967295) AS " + column + "l"
}

func again(condition, column string) string {
	return "sum(" + where(condition, "b."+column+"h") + ") AS " + column + "h, sum(" + where(condition, "b."+column+"l") + ") AS " + column + "l"
}
