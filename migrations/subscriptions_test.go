package migrations

import (
	"database/sql"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"
)

// What the audit log says of plans becomes subscriptions.
func TestSubscriptionsOfTheAuditLog(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "quota.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	sub, err := fs.Sub(files, "sqlite")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, sub, goose.WithTableName(versionTable), goose.WithAllowOutofOrder(true), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), 102); err != nil {
		t.Fatal(err)
	}
	number := 0
	log := func(at int, action, tenant, before, after string) {
		number++
		if _, err := db.ExecContext(t.Context(), "INSERT INTO audit_log VALUES ($1, $2, 'ann', $3, $4, $5, $6)", number, at, action, tenant, before, after); err != nil {
			t.Fatal(err)
		}
	}
	log(10, "policy.apply", "1", `{"version":0}`, `{"version":1}`)
	log(10, "tenant.apply", "acme", "", `{"plan":"free"}`)
	log(20, "tenant.create", "globex", "", `{"plan":"free","parent":"acme"}`)
	log(30, "tenant.set-plan", "acme", `{"plan":"free"}`, `{"plan":"paid"}`)
	log(30, "tenant.set-plan", "acme", `{"plan":"paid"}`, `{"plan":"gold"}`) // in the same millisecond
	log(40, "tenant.suspend", "acme", `{"plan":"gold"}`, `{"plan":"gold","suspended":true}`)
	log(50, "tenant.apply", "acme", `{"plan":"gold"}`, `{"plan":"gold","limits":[]}`)
	if _, err := db.ExecContext(t.Context(), `INSERT INTO tenants (id, plan, parent, overrides, suspended, change) VALUES
		('acme', 'gold', '', '', 0, 1), ('globex', 'paid', '', '', 0, 2), ('older', 'free', '', '', 0, 3)`); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := db.QueryContext(t.Context(), "SELECT tenant, from_ms, plan FROM subscriptions ORDER BY tenant, from_ms")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	got := ""
	for rows.Next() {
		var tenant, plan string
		var from int64
		if err := rows.Scan(&tenant, &from, &plan); err != nil {
			t.Fatal(err)
		}
		got += fmt.Sprintf("%s %d %s\n", tenant, from, plan)
	}
	// globex and older are not as the log has them: they end as they are.
	want := "acme 10 free\nacme 30 gold\nglobex 20 free\nglobex 21 paid\nolder 0 free\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
