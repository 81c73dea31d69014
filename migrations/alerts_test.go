package migrations

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"
)

// Events and deliveries are as they were after the table is made again with another key.
func TestAlertsAreKept(t *testing.T) {
	db := open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "quota.db")+"?_pragma=foreign_keys(1)")
	sub, err := fs.Sub(files, "sqlite")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, sub, goose.WithTableName(versionTable), goose.WithAllowOutofOrder(true), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), 114); err != nil {
		t.Fatal(err)
	}
	const insert = "INSERT INTO alerts VALUES (#, 'a#', 'cap', 'spending_cap', 'acme', 'p', '', 1000000, '2026-11', 5, AMOUNT, 'USD', 'stop', 1, 2, 'body')"
	event := func(number, amount string) string {
		return strings.NewReplacer("AMOUNT", amount, "#", number).Replace(insert)
	}
	exec(t, db, event("1", "5"))
	exec(t, db, "INSERT INTO alert_deliveries VALUES (1, 'ops', 'dead', 3, 4, 5, 6, 500, 'it answered 500')")
	if _, err := db.ExecContext(t.Context(), event("2", "9")); err == nil {
		t.Error("the old key has the amount")
	}
	if _, err := p.UpTo(t.Context(), 115); err != nil {
		t.Fatal(err)
	}
	var id, body, state, reason string
	err = db.QueryRowContext(t.Context(), "SELECT a.id, a.body, d.state, d.error FROM alerts a JOIN alert_deliveries d ON d.number = a.number").Scan(&id, &body, &state, &reason)
	if err != nil || id != "a1" || body != "body" || state != "dead" || reason != "it answered 500" {
		t.Errorf("kept: %s %s %s %s, %v", id, body, state, reason, err)
	}
	exec(t, db, event("2", "9"))
	for what, statement := range map[string]string{
		"the same of one amount": event("3", "9"), "a change": "UPDATE alerts SET used = 1", "a removal": "DELETE FROM alerts WHERE number = 2",
		"a delivery of no event": "INSERT INTO alert_deliveries VALUES (7, 'ops', 'dead', 3, 4, 5, 6, 500, '')",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
