package quotactl

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // to change by hand what the server keeps

	"github.com/f4ee788f/quota/internal/ledger"
	"github.com/f4ee788f/quota/internal/server/boot"
)

// book is a server that folds often, and its ledger's file.
func book(t *testing.T) (*env, *sql.DB) {
	t.Helper()
	dir := t.TempDir()
	e := start(t, func(c *boot.Config) { c.DataDir, c.FoldInterval = dir, 20*time.Millisecond })
	files, err := filepath.Glob(filepath.Join(dir, "*.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the ledger's file: %v, %v", files, err)
	}
	db, err := sql.Open("sqlite", "file:"+files[0]+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return e, db
}

// folded waits until a block holds what was settled.
func folded(t *testing.T, db *sql.DB) {
	t.Helper()
	for range 500 {
		var left int
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM queue").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("nothing was folded for 5 s")
}

func TestLedgerVerify(t *testing.T) {
	e, db := book(t)
	e.want("ledger verify of nothing", e.ok("ledger", "verify"), "the ledger is sound\nchecked 0 epochs, 0 reports, 0 blocks, 0 entries, 0 roll-ups, 0 in quarantine\n")
	e.settle(ledger.Row{Slot: e.now.Truncate(5 * time.Minute).Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Admitted: 12})
	folded(t, db)
	out := e.ok("ledger", "verify")
	if !strings.HasPrefix(out, "the ledger is sound\nchecked 1 epochs, 1 reports, 1 blocks, 1 entries, 1 roll-ups, 0 in quarantine\nblock 1 has the hash ") {
		t.Errorf("ledger verify printed\n%s", out)
	}
	if _, err := db.ExecContext(t.Context(), "UPDATE rollups SET admitted = 13"); err != nil {
		t.Fatal(err)
	}
	out, errs, code := e.run("ledger", "verify")
	if code != exitFailed || !strings.Contains(out, "and its entries add up to 12, 0, 0\n") || !strings.Contains(out, "not sound: 1 faults") || errs != "" {
		t.Errorf("ledger verify with a fault: got exit %d, %q, %q", code, out, errs)
	}
	if out, _, code := e.run("ledger", "verify", "-o", "json"); code != exitFailed || !strings.Contains(out, `"sound": false`) {
		t.Errorf("ledger verify -o json: got exit %d, %q", code, out)
	}
	e.want("ledger rebuild", e.ok("ledger", "rebuild"), "1 roll-ups were wrong\n")
	e.ok("ledger", "verify")
}
