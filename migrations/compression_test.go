package migrations

import (
	"testing"

	"github.com/f4ee788f/quota/internal/testenv"
)

// Payloads are compressed in the months that a ledger had when the migration came, and
// in those that are made later, as the table says.
func TestPayloadsOfEveryMonthAreCompressedAlike(t *testing.T) {
	url := testenv.Postgres(t).OwnerURL()
	if err := Postgres(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	db := open(t, "pgx", url)
	text, err := files.ReadFile("postgres/0006_compression.sql")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, "ALTER TABLE reports ALTER COLUMN payload SET COMPRESSION default")
	exec(t, db, "SELECT make_months((now() - interval '2 months')::date, now()::date)")
	exec(t, db, string(text)) // the annotations are comments
	exec(t, db, "SELECT make_months(now()::date, (now() + interval '2 months')::date)")

	const of = "SELECT attcompression::text FROM pg_attribute WHERE attname = 'payload' AND attrelid = "
	var want string
	if err := db.QueryRowContext(t.Context(), of+"'reports'::regclass").Scan(&want); err != nil {
		t.Fatal(err)
	}
	var months, alike int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*), count(*) FILTER (WHERE (`+of+`inhrelid) = $1)
		FROM pg_inherits WHERE inhparent = 'reports'::regclass`, want).Scan(&months, &alike); err != nil {
		t.Fatal(err)
	}
	if months != 5 || alike != months {
		t.Errorf("got %d months, %d of them compressed by %q as the table says, want 5 of 5", months, alike, want)
	}
}
