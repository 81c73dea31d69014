package servertest

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
	"github.com/f4ee788f/quota/internal/ledger/sqliteledger"
	"github.com/f4ee788f/quota/internal/policy/sqlstore"
	"github.com/f4ee788f/quota/internal/testenv"
	"github.com/f4ee788f/quota/migrations"
)

// Engine opens an empty ledger, with a policy store beside it.
type Engine func(t *testing.T, now func() time.Time) (ledger.Store, ledger.Books, *sqlstore.Store)

// OnSQLite is the embedded engine.
func OnSQLite(t *testing.T, now func() time.Time) (ledger.Store, ledger.Books, *sqlstore.Store) {
	t.Helper()
	l, err := sqliteledger.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), ledger.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, l.Books(), sqlstore.New(l.DB(), sqlstore.SQLite, now)
}

// OnPostgres is the production engine.
func OnPostgres(t *testing.T, now func() time.Time) (ledger.Store, ledger.Books, *sqlstore.Store) {
	t.Helper()
	pg := testenv.Postgres(t)
	if err := migrations.Postgres(t.Context(), pg.OwnerURL()); err != nil {
		t.Fatal(err)
	}
	l, err := pgledger.Open(t.Context(), pg.AppURL(), ledger.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	db := stdlib.OpenDBFromPool(l.Pool())
	t.Cleanup(func() { db.Close() })
	return l, l.Books(), sqlstore.New(db, sqlstore.Postgres, now)
}

// OnEngines runs a test on each engine.
func OnEngines(t *testing.T, test func(t *testing.T, on Engine)) {
	t.Run("SQLite", func(t *testing.T) { test(t, OnSQLite) })
	t.Run("Postgres", func(t *testing.T) { test(t, OnPostgres) })
}
