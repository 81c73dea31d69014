package migrations

import (
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"github.com/f4ee788f/quota/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// What the audit log says of plans becomes subscriptions.
func TestSubscriptionsOfTheAuditLog(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		db := open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "quota.db"))
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
		fillAudit(t, db)
		if _, err := p.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkSubscriptions(t, db)
	})
	t.Run("Postgres", func(t *testing.T) {
		// The roles are made with the whole schema: the statements run on it once more.
		url := testenv.Postgres(t).OwnerURL()
		if err := Postgres(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		db := open(t, "pgx", url)
		fillAudit(t, db)
		text, err := files.ReadFile("postgres/0110_subscriptions.sql")
		if err != nil {
			t.Fatal(err)
		}
		statements := regexp.MustCompile(`(?ms)^INSERT INTO subscriptions.*?;$`).FindAllString(string(text), -1)
		if len(statements) != 2 {
			t.Fatalf("%d statements fill the table, want 2", len(statements))
		}
		for _, statement := range append([]string{"ALTER TABLE subscriptions DISABLE TRIGGER follow"}, statements...) {
			exec(t, db, statement)
		}
		checkSubscriptions(t, db)
	})
}

func open(t *testing.T, driver, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func fillAudit(t *testing.T, db *sql.DB) {
	t.Helper()
	number := 0
	log := func(at int, action, tenant, before, after string) {
		number++
		exec(t, db, "INSERT INTO audit_log VALUES ($1, $2, 'ann', $3, $4, $5, $6)", number, at, action, tenant, before, after)
	}
	log(10, "policy.apply", "1", `{"version":0}`, `{"version":1}`)
	log(10, "tenant.apply", "acme", "", `{"plan":"free"}`)
	log(20, "tenant.create", "globex", "", `{"plan":"free","parent":"acme"}`)
	log(30, "tenant.set-plan", "acme", `{"plan":"free"}`, `{"plan":"paid"}`)
	log(30, "tenant.set-plan", "acme", `{"plan":"paid"}`, `{"plan":"gold"}`) // in the same millisecond
	log(40, "tenant.suspend", "acme", `{"plan":"gold"}`, `{"plan":"gold","suspended":true}`)
	log(50, "tenant.apply", "acme", `{"plan":"gold"}`, `{"plan":"gold","limits":[]}`)
	exec(t, db, `INSERT INTO tenants (id, plan, parent, overrides, suspended, change) VALUES
		('acme', 'gold', '', '', 0, 1), ('globex', 'paid', '', '', 0, 2), ('older', 'free', '', '', 0, 3)`)
}

func checkSubscriptions(t *testing.T, db *sql.DB) {
	t.Helper()
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
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	// globex and older are not as the log has them: they end as they are.
	want := "acme 10 free\nacme 30 gold\nglobex 20 free\nglobex 21 paid\nolder 0 free\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
