package migrations

import (
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/testenv"
)

// A migration that waits for a table holds up everybody who comes after it: it gives up
// soon, says why, and can be run again.
func TestAMigrationWaitsShortlyForATable(t *testing.T) {
	url := testenv.Postgres(t).OwnerURL()
	if err := Postgres(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	db := open(t, "pgx", url)
	exec(t, db, "DELETE FROM schema_version WHERE version_id = 6")
	reading, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Rollback()
	if _, err := reading.ExecContext(t.Context(), "SELECT count(*) FROM reports"); err != nil {
		t.Fatal(err)
	}
	defer func(d string) { lockTimeout = d }(lockTimeout)
	lockTimeout = "100ms"
	if err := Postgres(t.Context(), url); err == nil || !strings.Contains(err.Error(), "run it again later") {
		t.Errorf("while a table is read: got %v, want that it is to be run again", err)
	}
	if err := reading.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := Postgres(t.Context(), url); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
