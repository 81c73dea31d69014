package migrations

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

// sqliteState is the tables that are not facts: what is in them changes, or goes.
var sqliteState = strings.Fields(`access_keys alert_deliveries alert_marks corrections_queue frontier leaders leases months override_edges plan_changes
	policy_heads policy_switches probe queue recorders rollups schema_version server_secrets settled tenants touched webhook_outages`)

// Whoever has the file of an embedded ledger cannot change a fact by any statement, with any connection: the guards are
// the schema's alone. Every table is of facts, with their guards, or of state: a new one is looked at.
func TestSQLiteFactsAreAppendOnly(t *testing.T) {
	for _, recursive := range []string{"OFF", "ON"} {
		t.Run("recursive_triggers "+recursive, func(t *testing.T) {
			db := open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "ledger.db")+"?_pragma=recursive_triggers("+recursive+")")
			if err := SQLite(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			guarded := columns(t, db, "SELECT DISTINCT tbl_name FROM sqlite_master WHERE type = 'trigger' AND sql LIKE '%append-only%' ORDER BY 1")
			others := columns(t, db, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1")
			others = slices.DeleteFunc(others, func(name string) bool { return slices.Contains(guarded, name) })
			if !slices.Equal(others, sqliteState) {
				t.Errorf("tables without guards: got %v, want those of state, %v", others, sqliteState)
			}
			for _, table := range guarded {
				appendOnly(t, db, table)
			}
		})
	}
}

// appendOnly tries every kind of statement that could change a row of a table.
func appendOnly(t *testing.T, db *sql.DB, table string) {
	t.Helper()
	names := columns(t, db, "SELECT name FROM pragma_table_info('"+table+"') ORDER BY cid")
	types := columns(t, db, "SELECT lower(type) FROM pragma_table_info('"+table+"') ORDER BY cid")
	// Two rows that differ in every column: what a statement puts in the place of one is the other but for the key.
	row := func(n int) map[string]string {
		values := make(map[string]string)
		for i, name := range names {
			switch types[i] {
			case "text":
				values[name] = fmt.Sprintf("'t%d'", n)
			case "blob":
				values[name] = fmt.Sprintf("x'0%d'", n)
			default:
				values[name] = fmt.Sprint(n)
			}
		}
		switch table { // what its constraints want
		case "archives":
			values["fact"] = []string{"", "'reports'", "'entries'"}[n]
			values["month"] = "9" // the other tables' rows are of no month that is archived
		case "statements":
			values["number"], values["to_s"] = "1", fmt.Sprint(10*n)
		case "payers":
			values["from_s"] = fmt.Sprint(300 * n)
		case "credit_burns":
			values["left_before"], values["lapsed"], values["left_after"] = fmt.Sprint(n), "0", "0"
		}
		return values
	}
	list := func(values map[string]string) string {
		all := make([]string, len(names))
		for i, name := range names {
			all[i] = values[name]
		}
		return "(" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(all, ", ") + ")"
	}
	into := func(values map[string]string) string { return table + " " + list(values) }
	exec(t, db, "INSERT INTO "+into(row(1)))
	content := func() string {
		return fmt.Sprint(columns(t, db, "SELECT "+strings.Join(names, " || '|' || ")+" FROM "+table))
	}
	was := content()

	statements := []string{
		"DELETE FROM " + table,
		"DELETE FROM " + table + " WHERE true",
	}
	for _, or := range []string{"", "OR REPLACE ", "OR IGNORE ", "OR ABORT ", "OR FAIL ", "OR ROLLBACK "} {
		for _, name := range names {
			statements = append(statements, "UPDATE "+or+table+" SET "+name+" = "+row(2)[name])
		}
	}
	keys := unique(t, db, table)
	for _, key := range keys {
		other := row(2)
		for _, name := range key {
			if name == "rowid" {
				continue
			}
			other[name] = row(1)[name]
		}
		insert := into(other)
		if slices.Contains(key, "rowid") {
			insert = table + " (rowid, " + strings.Replace(strings.TrimPrefix(list(other), "("), "VALUES (", "VALUES ((SELECT rowid FROM "+table+"), ", 1)
		}
		statements = append(statements, "INSERT OR REPLACE INTO "+insert, "REPLACE INTO "+insert)
		set := make([]string, len(names))
		for i, name := range names {
			set[i] = name + " = excluded." + name
		}
		statements = append(statements, "INSERT INTO "+insert+" ON CONFLICT DO UPDATE SET "+strings.Join(set, ", "))
	}
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		if now := content(); now != was {
			t.Fatalf("%s: %v; the row was %s, and is %s", statement, err, was, now)
		}
		if err == nil {
			t.Errorf("%s: got no error", statement)
		}
	}
	if len(keys) == 0 {
		t.Errorf("%s has no key that a row could be replaced by", table)
	}
}

// unique returns the columns of each key that a row could be replaced by: the table's, those of its indexes, and the rowid.
func unique(t *testing.T, db *sql.DB, table string) (keys [][]string) {
	t.Helper()
	if key := columns(t, db, "SELECT name FROM pragma_table_info('"+table+"') WHERE pk > 0"); len(key) > 0 {
		keys = append(keys, key)
	}
	for _, index := range columns(t, db, `SELECT name FROM pragma_index_list('`+table+`') WHERE "unique"`) {
		key := columns(t, db, "SELECT name FROM pragma_index_info('"+index+"') WHERE name IS NOT NULL")
		if index == "alerts_once" {
			key = append(key, "of") // in an expression
		}
		keys = append(keys, key)
	}
	var bare bool
	if err := db.QueryRowContext(t.Context(), `SELECT sql NOT LIKE '%WITHOUT ROWID%'
			AND NOT EXISTS (SELECT 1 FROM pragma_table_info($1) WHERE pk > 0 AND type = 'INTEGER') -- which is the rowid
		FROM sqlite_master WHERE name = $1`, table).Scan(&bare); err != nil {
		t.Fatal(err)
	}
	if bare {
		keys = append(keys, []string{"rowid"})
	}
	return keys
}

func columns(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var one sql.NullString
		if err := rows.Scan(&one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one.String)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
