package sqliteledger_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/ledgertest"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
	"github.com/f4ee788f/quota/internal/ledger/sqliteledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fresh is a new file, which any number of stores open.
func fresh(t testing.TB) ledgertest.Engine {
	path := filepath.Join(t.TempDir(), "a ?#%led#ger.db")
	return ledgertest.Engine{
		Open: func(t testing.TB, o ledger.Options) ledger.Store { return open(t, path, o) },
		Query: func(t testing.TB, query string) [][]string {
			t.Helper()
			s := open(t, path, ledger.Options{})
			rows, err := s.DB().QueryContext(t.Context(), query)
			if err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			return texts(t, rows)
		},
		Unguard: func(t testing.TB) {
			t.Helper()
			s := open(t, path, ledger.Options{})
			if _, err := s.DB().ExecContext(t.Context(), unguard); err != nil {
				t.Fatal(err)
			}
		},
		Tamper: func(t testing.TB, statement string) {
			t.Helper()
			tamper(t, open(t, path, ledger.Options{}).DB(), statement)
		},
		Owner: func(t testing.TB, now func() time.Time) *sqlbooks.Owner {
			return sqlbooks.NewOwner(open(t, path, ledger.Options{}).DB(), sqlbooks.SQLite, now)
		},
		Bytes: "x'",
	}
}

// tamper runs a statement without the triggers that keep facts.
func tamper(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
	if err != nil {
		t.Fatal(err)
	}
	guards := texts(t, rows)
	script := ""
	for _, g := range guards {
		script += "DROP TRIGGER " + g[0] + ";\n"
	}
	script += statement + ";\n"
	for _, g := range guards {
		script += g[1] + ";\n"
	}
	if _, err := db.ExecContext(t.Context(), script); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// unguard makes the tables again without their keys, and frontiers that stay.
const unguard = `
	CREATE TABLE more_reports AS SELECT * FROM reports;
	DROP TABLE reports;
	ALTER TABLE more_reports RENAME TO reports;
	DROP TABLE queue;
	CREATE TABLE queue (id INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT, epoch INTEGER, seq INTEGER, row_count INTEGER, size INTEGER);
	CREATE TRIGGER frontier_stays AFTER UPDATE ON frontier WHEN NEW.seq > OLD.seq BEGIN
		UPDATE frontier SET seq = OLD.seq, total = OLD.total, digest = OLD.digest, state = OLD.state
			WHERE agent = OLD.agent AND epoch = OLD.epoch;
	END`

func open(t testing.TB, path string, o ledger.Options) *sqliteledger.Store {
	t.Helper()
	s, err := sqliteledger.Open(t.Context(), path, o)
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

func texts(t testing.TB, rows *sql.Rows) [][]string {
	t.Helper()
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		line := make([]string, len(values))
		for i, v := range values {
			switch v := (*v.(*any)).(type) {
			case []byte:
				line[i] = fmt.Sprintf("%x", v)
			default:
				line[i] = fmt.Sprint(v)
			}
		}
		all = append(all, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLedger(t *testing.T) { ledgertest.Run(t, fresh) }

// The database refuses to change facts, whoever asks.
func TestFactsAreAppendOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	clock := ledgertest.NewClock()
	s := open(t, path, ledger.Options{Now: clock.Now, Accept: func(_ string, r ledger.Row) error {
		if r.Tenant == "unknown" {
			return fmt.Errorf("unknown")
		}
		return nil
	}})
	r := ledger.NewReport("a", 0, 1, 0, []ledger.Row{
		{Slot: ledgertest.Start.Unix(), Tenant: "acme", Limit: "requests", Admitted: 1},
		{Slot: ledgertest.Start.Unix(), Tenant: "unknown", Limit: "requests", Admitted: 1},
	}, ledgertest.Start.UnixMilli(), false)
	if _, err := s.Settle(t.Context(), []ledger.Report{r}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Fold(t.Context(), clock.Now()); err != nil {
		t.Fatal(err)
	}
	c, err := ledger.NewCorrection(ledger.KindAdjust, "k", false, []ledger.Row{{Slot: ledgertest.Start.Unix(), Tenant: "acme", Limit: "requests", Admitted: 1}}, "r")
	if err == nil {
		_, err = s.Books().Correct(t.Context(), "me", c)
	}
	if err == nil {
		err = s.Books().Discard(t.Context(), "me", "r", []int64{1})
	}
	if err != nil {
		t.Fatal(err)
	}
	for table, column := range map[string]string{"reports": "payload", "entries": "admitted", "blocks": "hash", "keys": "tenant", "quarantine": "reason",
		"corrections": "reason", "resolutions": "reason"} {
		for _, statement := range []string{
			"UPDATE " + table + " SET " + column + " = " + column,
			"DELETE FROM " + table,
			"INSERT OR REPLACE INTO " + table + " SELECT * FROM " + table,
		} {
			if _, err := s.DB().ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "append-only") {
				t.Errorf("%s: got %v, want it refused", statement, err)
			}
		}
	}
}

// A server whose disk is full says so for as long as it is, and works again after.
func TestPingOnAFullDisk(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "ledger.db"), ledger.Options{})
	settle := func(seq, before int64, rows int) error {
		all := make([]ledger.Row, rows)
		for i := range all {
			all[i] = ledger.Row{Slot: time.Now().Truncate(5 * time.Minute).Unix(), Tenant: fmt.Sprintf("tenant-%d", i), Limit: "requests", Admitted: 1}
		}
		_, err := s.Settle(t.Context(), []ledger.Report{ledger.NewReport("a", 1, seq, before, all, time.Now().UnixMilli(), false)})
		return err
	}
	if err := settle(1, 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	// No page more than there are: what SQLite then answers is what it does on a full disk.
	sqliteledger.MaxPages(t, s, 1)
	if err := settle(2, 1, 20_000); !errors.Is(err, ledger.ErrUnavailable) {
		t.Fatalf("settle on a full disk: got %v, want ErrUnavailable", err)
	}
	for range 2 {
		if err := s.Ping(t.Context()); !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "full") {
			t.Errorf("ping on a full disk: got %v, want that it is full", err)
		}
	}
	sqliteledger.MaxPages(t, s, 1<<30)
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping with room again: got %v", err)
	}
	if err := settle(2, 1, 20_000); err != nil {
		t.Errorf("settle with room again: got %v", err)
	}
}

func BenchmarkLedger(b *testing.B) { ledgertest.Bench(b, fresh) }
