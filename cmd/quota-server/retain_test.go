package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
	"github.com/f4ee788f/quota/internal/ledger/sqliteledger"
	"github.com/f4ee788f/quota/internal/testenv"
	"github.com/f4ee788f/quota/migrations"
)

// booked is a store with books.
type booked interface {
	ledger.Store
	Books() ledger.Books
}

// A ledger that was used in March of last year and not since: all of it is archived, by
// the command line, and it goes on.
func TestRetain(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		dir := t.TempDir()
		retainAll(t, []string{"--data-dir", dir}, time.Now().UTC(), func(o ledger.Options) (booked, error) {
			return sqliteledger.Open(t.Context(), filepath.Join(dir, "quota.db"), o)
		})
	})
	t.Run("Postgres", func(t *testing.T) {
		pg := testenv.Postgres(t)
		if err := migrations.Postgres(t.Context(), pg.OwnerURL()); err != nil {
			t.Fatal(err)
		}
		retainAll(t, []string{"--ledger-owner-url", pg.OwnerURL()}, today(t, pg.OwnerURL()), func(o ledger.Options) (booked, error) {
			return pgledger.Open(t.Context(), pg.AppURL(), o)
		})
	})
}

// today is the database's time, by which the ledger judges rows and months: this machine may have another.
func today(t *testing.T, url string) (now time.Time) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.QueryRow(t.Context(), "SELECT now()").Scan(&now), db.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return now.UTC()
}

func retainAll(t *testing.T, which []string, now time.Time, open func(ledger.Options) (booked, error)) {
	retain := func(args ...string) (string, error) {
		var err error
		out := stdout(t, func() { err = run(t.Context(), func() {}, append(append([]string{"retain"}, which...), args...)) })
		return out, err
	}
	use := func(o ledger.Options, do func(booked)) {
		t.Helper()
		s, err := open(o)
		if err != nil {
			t.Fatal(err)
		}
		do(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	settle := func(s booked, agent string, at time.Time) {
		t.Helper()
		slot := at.Truncate(ledger.DefaultSlot).Unix()
		r := ledger.NewReport(agent, 0, 1, 0, []ledger.Row{{Slot: slot, Tenant: "acme", Limit: "requests", Meter: "requests", Admitted: 3}}, at.UnixMilli(), false)
		if receipts, err := s.Settle(t.Context(), []ledger.Report{r}); err != nil || receipts[0].Status != ledger.Settled {
			t.Fatalf("settle: %v, %v", receipts, err)
		}
	}
	then := time.Date(now.Year()-1, 3, 31, 12, 0, 0, 0, time.UTC)
	use(ledger.Options{Now: func() time.Time { return then }}, func(s booked) {
		settle(s, "a", then)
		if n, _, err := s.Fold(t.Context(), then); err != nil || n != 1 {
			t.Fatalf("fold: %d, %v", n, err)
		}
	})
	month := then.Format("2006-01")
	dir := t.TempDir()
	oldest := ledger.Month(now.Unix()).AddDate(0, -2, 0).Format("2006-01")
	if out, err := retain("--archive", dir, "--before", oldest, "--dry-run"); err != nil || !strings.Contains(out, month+" reports: 1 rows") || !strings.Contains(out, "to archive") {
		t.Errorf("dry run: got %q, %v", out, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("dry run left %v, %v", files, err)
	}
	if _, err := retain("--archive", filepath.Join(dir, "none"), "--keep", "2"); !errors.Is(err, ledger.ErrRetention) {
		t.Errorf("no directory: got %v", err)
	}
	if out, err := retain("--archive", dir, "--keep", "2"); err != nil || !strings.Contains(out, month+" entries: 1 rows, ") {
		t.Fatalf("retain: got %q, %v", out, err)
	}
	if out, err := retain("--archive", dir, "--keep", "2"); err != nil || !strings.HasPrefix(out, "0 months") {
		t.Errorf("retain again: got %q, %v", out, err)
	}
	if out, err := retain("--archive", dir, "--check"); err != nil || !strings.Contains(out, "1 reports, 1 entries, 1 blocks") {
		t.Errorf("check: got %q, %v", out, err)
	}
	use(ledger.Options{}, func(s booked) {
		settle(s, "b", now)
		if n, _, err := s.Fold(t.Context(), now); err != nil || n != 1 {
			t.Fatalf("fold: %d, %v", n, err)
		}
		v, err := s.Books().Verify(t.Context(), nil)
		if err != nil || !v.Sound() || v.Archived.Reports != 1 || v.Archived.Blocks != 1 || v.Height != 2 {
			t.Errorf("verify: got %+v, %v", v, err)
		}
		u, err := s.Usage(t.Context(), ledger.Query{Tenant: "acme"})
		if err != nil || len(u.Rows) != 1 || u.Rows[0].Admitted != 6 {
			t.Errorf("usage: got %+v, %v, want 6 units", u, err)
		}
	})
	name := filepath.Join(dir, "entries-"+month+".jsonl.gz")
	if err := os.Truncate(name, 30); err != nil {
		t.Fatal(err)
	}
	if out, err := retain("--archive", dir, "--check"); !errors.Is(err, errFaults) || !strings.Contains(out, "archives entries-"+month) {
		t.Errorf("check of a file cut short: got %q, %v", out, err)
	}
}
