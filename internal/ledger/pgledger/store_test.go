package pgledger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/ledgertest"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
	"github.com/f4ee788f/quota/internal/testenv"
	"github.com/f4ee788f/quota/migrations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Wrap(m)) }

// fresh is a new database with the ledger's schema; stores connect as quota_app.
func fresh(t testing.TB) ledgertest.Engine {
	pg := testenv.Postgres(t)
	migrate(t, pg)
	return ledgertest.Engine{
		Open:  func(t testing.TB, o ledger.Options) ledger.Store { return open(t, pg, o) },
		Query: func(t testing.TB, q string) [][]string { return query(t, pg.OwnerURL(), q) },
		Unguard: func(t testing.TB) {
			t.Helper()
			owner := connect(t, pg.OwnerURL())
			defer owner.Close(t.Context())
			if _, err := owner.Exec(t.Context(), unguard); err != nil {
				t.Fatal(err)
			}
		},
		Tamper: func(t testing.TB, statement string) {
			t.Helper()
			query(t, pg.OwnerURL(), "SET session_replication_role = replica; "+statement) // no trigger fires then
		},
		Owner: func(t testing.TB, now func() time.Time) *sqlbooks.Owner {
			t.Helper()
			db, err := migrations.Owner(pg.OwnerURL())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
			return sqlbooks.NewOwner(db, sqlbooks.Postgres, now)
		},
		Bytes: `'\x`, Overriding: "OVERRIDING SYSTEM VALUE",
	}
}

// unguard drops the keys of reports and queue, and makes frontiers stay.
const unguard = `
	ALTER TABLE reports DROP CONSTRAINT reports_pkey;
	ALTER TABLE queue DROP CONSTRAINT queue_agent_epoch_seq_key;
	CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		NEW.seq = OLD.seq; NEW.total = OLD.total; NEW.digest = OLD.digest; NEW.state = OLD.state;
		RETURN NEW;
	END $$;
	CREATE TRIGGER stay BEFORE UPDATE ON frontier FOR EACH ROW WHEN (NEW.seq > OLD.seq) EXECUTE FUNCTION stay()`

func migrate(t testing.TB, pg *testenv.PG) {
	t.Helper()
	if err := migrations.Postgres(t.Context(), pg.OwnerURL()); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, pg *testenv.PG, o ledger.Options) *pgledger.Store {
	t.Helper()
	s, err := pgledger.Open(t.Context(), pg.AppURL(), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func query(t testing.TB, url, q string) [][]string {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	// The simple protocol answers in text, as the server writes it.
	results, err := conn.PgConn().Exec(t.Context(), q).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	var all [][]string
	for _, row := range results[len(results)-1].Rows {
		line := make([]string, len(row))
		for i, v := range row {
			line[i] = strings.TrimPrefix(string(v), `\x`)
		}
		all = append(all, line)
	}
	return all
}

func TestLedger(t *testing.T) { ledgertest.Run(t, fresh) }

func BenchmarkLedger(b *testing.B) { ledgertest.Bench(b, fresh) }
