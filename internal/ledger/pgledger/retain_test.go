package pgledger_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/ledgertest"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
	"github.com/f4ee788f/quota/migrations"
)

// Archiving is the owner's alone, and what it noted is a fact to everybody.
func TestAppRoleCannotArchive(t *testing.T) {
	pg, _ := settled(t)
	db, err := migrations.Owner(pg.OwnerURL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r := sqlbooks.Retention{Before: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC), Dir: t.TempDir(), Actor: "keeper"}
	// The correction of settled is not folded: a server does so.
	s := open(t, pg, ledger.Options{})
	r.Fold = func(ctx context.Context) error { _, _, err := s.Fold(ctx, ledgertest.Start); return err }
	owner := sqlbooks.NewOwner(db, sqlbooks.Postgres, func() time.Time { return ledgertest.Start.AddDate(0, 4, -1) })
	if done, err := owner.Retain(t.Context(), r); err != nil || len(done) != 2*3 {
		t.Fatalf("retain: got %v, %v, want three months", done, err)
	}
	as := connect(t, pg.AppURL())
	defer as.Close(t.Context())
	tables := []string{"retired", "archives", "archived_reports", "archived_settled", "archived_corrections"}
	for _, table := range tables {
		if _, err := as.Exec(t.Context(), "SELECT * FROM "+table); err != nil {
			t.Errorf("%s: %v", table, err)
		}
		if n := query(t, pg.OwnerURL(), "SELECT count(*) FROM "+table)[0][0]; n == "0" {
			t.Errorf("%s is empty, and shows nothing", table)
		}
		for _, statement := range []string{
			"INSERT INTO ? SELECT * FROM ?", "UPDATE ? SET month = month", "DELETE FROM ?", "TRUNCATE ?", "DROP TABLE ?",
			"ALTER TABLE ? DISABLE TRIGGER ALL", "ALTER TABLE ? OWNER TO quota_app",
		} {
			statement = strings.ReplaceAll(statement, "?", table)
			var e *pgconn.PgError
			if _, err := as.Exec(t.Context(), statement); !errors.As(err, &e) || e.Code != "42501" {
				t.Errorf("%s: got %v, want permission denied", statement, err)
			}
		}
		for _, statement := range []string{"UPDATE ? SET month = month", "DELETE FROM ?", "TRUNCATE ?"} {
			statement = strings.ReplaceAll(statement, "?", table)
			if _, err := db.ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "append-only") {
				t.Errorf("%s as the owner: got %v, want it refused", statement, err)
			}
		}
	}
	// Nor can it have a retired month made again.
	if _, err := as.Exec(t.Context(), "SELECT make_months('2026-01-01', '2026-08-01')"); err != nil {
		t.Fatal(err)
	}
	if got := query(t, pg.OwnerURL(), "SELECT min(month) FROM months"); got[0][0] != "2026-06-01" {
		t.Errorf("the oldest month is %s, want the one after those retired", got[0][0])
	}
}

// While others read the ledger for long, or store reports, retention waits for them a little at a time. So it
// never waits for somebody who waits for it.
func TestRetentionGivesWay(t *testing.T) {
	pg, _ := settled(t)
	now := time.Date(2026, 6, 20, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	s := open(t, pg, ledger.Options{Now: clock})
	if err := s.Ping(t.Context()); err != nil { // makes the months that there shall be
		t.Fatal(err)
	}
	db, err := migrations.Owner(pg.OwnerURL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	reader := connect(t, pg.AppURL())
	defer reader.Close(t.Context())
	tx, err := reader.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM entries"); err != nil {
		t.Fatal(err)
	}
	waits := make(chan struct{})
	r := sqlbooks.Retention{Before: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), Dir: t.TempDir(), Actor: "keeper"}
	r.Fold = func(ctx context.Context) error { _, _, err := s.Fold(ctx, ledgertest.Start); return err }
	r.Step = func(_ time.Time, what string) error {
		if what == "entries renamed" {
			select {
			case <-waits:
			default:
				close(waits)
			}
		}
		return nil
	}
	done := make(chan error, 1)
	go func() {
		_, err := sqlbooks.NewOwner(db, sqlbooks.Postgres, clock).Retain(t.Context(), r)
		done <- err
	}()
	select {
	case <-waits:
	case err := <-done:
		t.Fatalf("it did not wait for the reader: %v", err)
	}
	// While it wants the tables, usage is stored and read with at most its patience of waiting.
	for i := range 3 {
		rep := ledger.NewReport("busy", int64(i), 1, 0, []ledger.Row{{Slot: now.Unix(), Tenant: "acme", Limit: "requests", Admitted: 1}}, now.UnixMilli(), true)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		receipts, err := s.Settle(ctx, []ledger.Report{rep})
		cancel()
		if err != nil || receipts[0].Status != ledger.Settled {
			t.Fatalf("settle meanwhile: %v, %v", receipts, err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if v, err := s.Books().Verify(t.Context(), nil); err != nil || !v.Sound() {
		t.Errorf("verify: %+v, %v", v, err)
	}
}

// A read while a month is dropped has all of the month's entries, or is refused. A partition is gone from
// earlier snapshots, too.
func TestReadWhileAMonthIsDropped(t *testing.T) {
	for name, read := range map[string]func(context.Context, *pgledger.Store) error{
		"usage": func(ctx context.Context, s *pgledger.Store) error {
			_, err := s.Usage(ctx, ledger.Query{Tenant: "acme", From: ledgertest.Start.Add(-time.Minute), To: ledgertest.Start.Add(time.Hour)})
			return err
		},
		"sealed": func(ctx context.Context, s *pgledger.Store) error {
			_, err := s.Books().Sealed(ctx, ledger.SealedQuery{Tenant: "acme", From: ledgertest.Start.Add(-time.Hour).Unix(), To: ledgertest.Start.Add(time.Hour).Unix()})
			return err
		},
		"breakdown": func(ctx context.Context, s *pgledger.Store) error {
			_, err := s.Books().Breakdown(ctx, ledger.BreakdownQuery{Every: ledger.EverySlot, Height: 1}, func(*ledger.BreakdownRow) error { return nil }, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			pg, _ := settled(t)
			now := time.Date(2026, 6, 20, 12, 0, 0, 0, time.UTC)
			clock := func() time.Time { return now }
			s := open(t, pg, ledger.Options{Now: clock})
			if err := s.Ping(t.Context()); err != nil { // makes the months that there shall be
				t.Fatal(err)
			}
			r := ledger.NewReport("b", 0, 1, 0, []ledger.Row{{Slot: ledgertest.Start.Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Admitted: 1}},
				ledgertest.Start.UnixMilli(), false)
			if receipts, err := s.Settle(t.Context(), []ledger.Report{r}); err != nil || receipts[0].Status != ledger.Settled {
				t.Fatalf("settle: %v, %v", receipts, err)
			}
			db, err := migrations.Owner(pg.OwnerURL())
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			ended := make(chan error, 1)
			retention := sqlbooks.Retention{Before: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), Dir: t.TempDir(), Actor: "keeper"}
			retention.Fold = func(ctx context.Context) error { _, _, err := s.Fold(ctx, now); return err }
			retention.Step = func(month time.Time, what string) error {
				if what != "committing" || month.Month() != time.March {
					return nil
				}
				go func() { ended <- read(t.Context(), s) }()
				for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
					if query(t, pg.OwnerURL(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'")[0][0] != "0" {
						return nil // it has its snapshot, and waits for the partition
					}
				}
				return errors.New("nobody waits for the tables")
			}
			if _, err := sqlbooks.NewOwner(db, sqlbooks.Postgres, clock).Retain(t.Context(), retention); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, ledger.ErrQuery) || !strings.Contains(err.Error(), "archived") {
				t.Errorf("got %v, want it refused", err)
			}
		})
	}
}

// A server of a release before retention judges by the months that it read when it started. Once one is retired
// it stores no report. One of its rows may be of that month, and would block every fold. Servers that know go
// on.
func TestServerBeforeRetentionStoresNothing(t *testing.T) {
	pg, _ := settled(t)
	now := time.Date(2026, 6, 20, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	s := open(t, pg, ledger.Options{Now: clock})
	if _, _, err := s.Fold(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	march := time.Date(2026, 3, 31, 23, 0, 0, 0, time.UTC)
	// store is what intake of such a release does, but for its frontier.
	store := func(seq int64) error {
		r := ledger.NewReport("old", 1, seq, 0, []ledger.Row{{Slot: march.Unix(), Tenant: "acme", Limit: "requests", Admitted: 42}}, now.UnixMilli(), false)
		conn := connect(t, pg.AppURL())
		defer conn.Close(t.Context())
		_, err := conn.Exec(t.Context(), `WITH stored AS (
				INSERT INTO reports (month, agent, epoch, seq, total_before, total_after, through_ms, closed, row_count, digest, payload, held, stored_ms)
				VALUES ('2026-06-01', 'old', 1, $1, 0, $2, $3, false, 1, $4, $5, '', $3) RETURNING month, agent, epoch, seq, row_count)
			INSERT INTO queue (month, agent, epoch, seq, row_count, size) SELECT *, 100 FROM stored`, seq, r.After, r.Through, r.Digest[:], r.Payload)
		return err
	}
	if err := store(1); err != nil {
		t.Fatalf("before anything was retired: %v", err)
	}
	if n, _, err := s.Fold(t.Context(), now); err != nil || n != 1 {
		t.Fatalf("fold: %d, %v", n, err)
	}
	db, err := migrations.Owner(pg.OwnerURL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r := sqlbooks.Retention{Before: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), Dir: t.TempDir(), Actor: "keeper"}
	if _, err := sqlbooks.NewOwner(db, sqlbooks.Postgres, clock).Retain(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	var e *pgconn.PgError
	if err := store(2); !errors.As(err, &e) || e.Code != "55000" {
		t.Errorf("a row of a month that is gone: got %v, want it refused", err)
	}
	report := ledger.NewReport("new", 1, 1, 0, []ledger.Row{
		{Slot: march.Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Admitted: 1}, {Slot: now.Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Admitted: 2},
	}, now.UnixMilli(), false)
	if receipts, err := s.Settle(t.Context(), []ledger.Report{report}); err != nil || receipts[0].Status != ledger.Settled {
		t.Errorf("settle: %v, %v", receipts, err)
	}
	if n, _, err := s.Fold(t.Context(), now); err != nil || n != 1 {
		t.Errorf("fold: %d, %v", n, err)
	}
	if n := query(t, pg.OwnerURL(), "SELECT count(*) FROM quarantine WHERE agent = 'new'")[0][0]; n != "1" {
		t.Errorf("%s rows in quarantine, want the one of March", n)
	}
}

// Reports of a month whose files are being read stay stored until they are folded. A place in the queue without
// its report would block every fold.
func TestMonthWithQueuedReportsStays(t *testing.T) {
	pg, _ := settled(t)
	now := time.Date(2026, 6, 20, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	s := open(t, pg, ledger.Options{Now: clock})
	if _, _, err := s.Fold(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	db, err := migrations.Owner(pg.OwnerURL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	at := time.Date(2026, 3, 31, 23, 0, 0, 0, time.UTC)
	r := ledger.NewReport("old", 1, 1, 0, []ledger.Row{{Slot: at.Unix(), Tenant: "acme", Limit: "requests", Admitted: 42}}, at.UnixMilli(), false)
	stored := false
	retention := sqlbooks.Retention{Before: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), Dir: t.TempDir(), Actor: "keeper"}
	retention.Step = func(month time.Time, what string) error {
		if what != "dropped" || month.Month() != time.February || stored {
			return nil
		}
		stored = true
		for _, statement := range []struct {
			text string
			args []any
		}{
			{"ALTER TABLE reports DISABLE TRIGGER holds_months", nil}, // as before there was one
			{`INSERT INTO reports (month, agent, epoch, seq, total_before, total_after, through_ms, closed, row_count, digest, payload, held, stored_ms)
				VALUES ('2026-03-01', 'old', 1, 1, 0, $1, $2, false, 1, $3, $4, '', $2)`, []any{r.After, r.Through, r.Digest[:], r.Payload}},
			{"INSERT INTO queue (month, agent, epoch, seq, row_count, size) VALUES ('2026-03-01', 'old', 1, 1, 1, 100)", nil},
			{`INSERT INTO frontier (agent, epoch, seq, total, through_ms, seen_ms, digest, state, reason)
				VALUES ('old', 1, 1, $1, $2, $2, $3, 'open', '')`, []any{r.After, r.Through, r.Digest[:]}},
		} {
			if _, err := db.ExecContext(t.Context(), statement.text, statement.args...); err != nil {
				return err
			}
		}
		return nil
	}
	owner := sqlbooks.NewOwner(db, sqlbooks.Postgres, clock)
	if done, err := owner.Retain(t.Context(), retention); !errors.Is(err, ledger.ErrRetention) || !strings.Contains(err.Error(), "1 reports of it wait to be folded") || len(done) != 2 {
		t.Errorf("got %v, %v, want March to stay", done, err)
	}
	if n, _, err := s.Fold(t.Context(), now); err != nil || n != 1 {
		t.Errorf("fold: %d, %v", n, err)
	}
	if done, err := owner.Retain(t.Context(), retention); err != nil || len(done) != 2 {
		t.Errorf("after the fold: got %v, %v, want March archived", done, err)
	}
	if v, err := s.Books().Verify(t.Context(), nil); err != nil || !v.Sound() {
		t.Errorf("verify: %+v, %v", v, err)
	}
}
