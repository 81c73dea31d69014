package quotactl

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "modernc.org/sqlite" // to change by hand what the server keeps

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
	"github.com/f4ee788f/quota/internal/server/boot"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
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
	db, err := sql.Open("sqlite", "file:"+files[0]+"?_txlock=immediate&_pragma=busy_timeout(5000)") // as the server's own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return e, db
}

// folded waits until a block holds what was settled.
func folded(t *testing.T, db *sql.DB) {
	t.Helper()
	eventually(t, "all is folded", func() bool {
		var left int
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM queue").Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
}

// eventually waits for what the server, a process's loops in real time, does by itself.
func eventually(t *testing.T, what string, there func() bool) {
	t.Helper()
	for range 6000 {
		if there() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("for a minute it was not so that %s", what)
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

// What is archived is told as such.
func TestLedgerArchived(t *testing.T) {
	e, db := book(t)
	e.settle(ledger.Row{Slot: e.now.Truncate(5 * time.Minute).Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Admitted: 12})
	folded(t, db)
	oldest := ledger.Month(e.now.Unix()).AddDate(0, 1, 0)
	later := func() time.Time { return oldest.AddDate(0, ledger.LeastKept, 0) }
	_, err := sqlbooks.NewOwner(db, sqlbooks.SQLite, later).Retain(t.Context(), sqlbooks.Retention{Before: oldest, Dir: t.TempDir(), Actor: "me", Unbilled: true})
	if err != nil {
		t.Fatal(err)
	}
	month := e.now.UTC().Format("2006-01")
	out := e.ok("ledger", "verify")
	if want := "\narchived is what is before " + oldest.Format("2006-01") + ": 1 reports were checked by numbers and digests, 1 blocks by chain only, 1 roll-ups not at all\n"; !strings.Contains(out, want) {
		t.Errorf("ledger verify printed\n%s, want %s", out, want)
	}
	if out := e.ok("ledger", "trace", "gw-1/1/1"); !strings.Contains(out, "\nblock 1, ") || !strings.Contains(out, "it is archived in reports-"+month+".jsonl.gz") {
		t.Errorf("trace of a report printed\n%s", out)
	}
	if _, errs, code := e.run("ledger", "trace", "1/0"); code != exitFailed || !strings.Contains(errs, "it is archived in entries-"+month+".jsonl.gz") {
		t.Errorf("trace of an entry: got exit %d, %s", code, errs)
	}
	e.want("usage", e.ok("usage", "--tenant", "acme", "-o", "csv"), "tenant,admitted,overage,denied\nacme,12,0,0\n")
}

// reason and key are the words of every correction here.
func because(words ...string) []string { return append(words, "--reason", "a test") }

// What a killed agent left is released, or discarded, by its name, its epoch and why it is held, however much it is.
func TestLedgerQuarantineOfAnAgent(t *testing.T) {
	e, _ := book(t)
	slot := e.now.Truncate(5 * time.Minute).Unix()
	conn, err := grpc.NewClient(e.s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	api := quotav1.NewLeaseServiceClient(conn)
	send := func(agent string, epoch int64, unsealed bool, meter string, n int) {
		var rows []ledger.Row
		for i := range n {
			rows = append(rows, ledger.Row{Slot: slot - 300*int64(i%5), Tenant: "acme", Limit: "requests", Meter: meter, Version: 1, Plan: "paid", Attributes: fmt.Sprint("user=", i), Admitted: 1})
		}
		r := ledger.NewReport(agent, epoch, 1, 0, rows, e.now.UnixMilli(), false)
		r.Unsealed = unsealed
		e.report(api, r)
	}
	send("gw-1", 1, true, "nonsense", 1100)
	send("gw-1", 2, true, "nonsense", 2)
	send("gw-1", 3, false, "nonsense", 3)
	send("gw-2", 1, true, "requests", 4)
	e.want("discard of an epoch", e.ok(because("ledger", "quarantine", "discard", "--agent", "gw-1", "--epoch", "1")...), "discarded 1100\n")
	e.want("again", e.ok(because("ledger", "quarantine", "discard", "--agent", "gw-1", "--epoch", "1")...), "discarded 0\n")
	e.want("discard of what is unsealed", e.ok(because("ledger", "quarantine", "discard", "--agent", "gw-1", "--held-for", "unsealed")...), "discarded 2\n")
	if _, errs, code := e.run(because("ledger", "quarantine", "retry", "--agent", "gw-1")...); code != exitFailed || strings.Count(errs, " stays: there is no meter") != 3 {
		t.Errorf("retry of what cannot be: exit %d, %q", code, errs)
	}
	e.want("retry", e.ok(because("ledger", "quarantine", "retry", "--agent", "gw-2", "--epoch", "1")...), "correction 1 released 4 rows\n")
	if out, errs, code := e.run(because("ledger", "quarantine", "retry", "--agent", "gw-2")...); code != 0 || out != "" || !strings.Contains(errs, "no such rows are held") {
		t.Errorf("retry of nothing: exit %d, %q, %q", code, out, errs)
	}
}

func TestLedgerCorrections(t *testing.T) {
	e, db := book(t)
	slot := e.now.Truncate(5 * time.Minute)
	e.settle(
		ledger.Row{Slot: slot.Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Plan: "paid", Admitted: 12},
		ledger.Row{Slot: slot.Unix(), Tenant: "acme", Limit: "requests", Meter: "nonsense", Version: 1, Admitted: 5},
	)
	folded(t, db)
	h := slot.UTC().Format("2006-01-02T15:04Z")
	out := e.ok("ledger", "trace", "gw-1/1/1", "-o", "csv")
	if want := h + ",acme,requests,requests,paid,,12,0,0,entry 1/0\n"; !strings.Contains(out, want) || !strings.Contains(out, "nonsense,,,5,0,0,quarantine 1\n") {
		t.Errorf("trace of a report printed\n%s", out)
	}
	if out := e.ok("ledger", "trace", "1/0"); !strings.Contains(out, "gw-1/1/1        12        0       0\n") {
		t.Errorf("trace of an entry printed\n%s", out)
	}
	adjust := append(because("ledger", "adjust", "--entry", "1/0", "--idempotency-key", "t-1"), "--", "-4")
	for range 2 {
		e.want("adjust", e.ok(adjust...), "correction 1: adjust of -4 units in 1 rows\n")
	}
	adjust[len(adjust)-1] = "-5"
	if out, errs, code := e.run(adjust...); code != exitFailed || out != "" || !strings.Contains(errs, `correction 1 has the key "t-1", and says something else (AlreadyExists)`) {
		t.Errorf("the same key with other units: got exit %d, %q, %q", code, out, errs)
	}
	file := e.file("usage.csv", "time,tenant,limit,meter,admitted,denied\n"+slot.UTC().Format(time.RFC3339)+",acme,requests,requests,100,3\n")
	e.want("backfill", e.ok(because("ledger", "backfill", "-f", file, "--idempotency-key", "t-2")...), "correction 2: backfill of 100 units in 1 rows\n")
	e.want("usage", e.ok("usage", "--tenant", "acme", "-o", "csv"), "tenant,admitted,overage,denied\nacme,108,0,3\n")
	e.want("revert", e.ok(because("ledger", "revert", "2")...), "correction 3: revert of -100 units in 1 rows\n")
	if _, errs, code := e.run(append(because("ledger", "quarantine", "retry", "1"), "--timeout", "5s")...); code != exitFailed || !strings.Contains(errs, "1 stays: there is no meter") {
		t.Errorf("retry: got exit %d, %q", code, errs)
	}
	if out := e.ok("ledger", "quarantine", "list", "-o", "csv"); !strings.Contains(out, "1,gw-1/1/1,0,acme,requests,5,") || !strings.Contains(out, `,held,"there is no meter`) {
		t.Errorf("quarantine list printed\n%s", out)
	}
	e.want("discard", e.ok(because("ledger", "quarantine", "discard", "1")...), "discarded 1\n")
	if out := e.ok("ledger", "quarantine", "show", "1"); !strings.Contains(out, `"meter": "nonsense"`) || !strings.Contains(out, `"actor": "open"`) {
		t.Errorf("quarantine show printed\n%s", out)
	}
	if out := e.ok("ledger", "corrections", "-o", "csv"); !strings.Contains(out, "2,backfill,100,1,") || !strings.Contains(out, ",3,open,") {
		t.Errorf("corrections printed\n%s", out)
	}
	e.want("agents lost", e.ok(because("agents", "lost", "gw-1", "--epoch", "1")...), "gw-1/1 is lost: 17 units in 1 reports are settled; what it admitted from TIME on may be missing\n")
	if out := e.ok("get", "agents", "-o", "csv"); !strings.Contains(out, "gw-1,1,lost,1,17,") {
		t.Errorf("get agents printed\n%s", out)
	}
	e.ok("ledger", "verify")
	for _, c := range []struct {
		words []string
		want  string
	}{
		{because("ledger", "adjust", "--entry", "1/0", "--idempotency-key", "x", "0"), "and not 0"},
		{because("ledger", "adjust", "--entry", "1/0", "5"), "--idempotency-key"},
		{because("ledger", "adjust", "--tenant", "acme", "--limit", "requests", "--at", "now", "--idempotency-key", "x", "5"), "which meter?"},
		{because("ledger", "adjust", "--entry", "one", "--idempotency-key", "x", "5"), "write HEIGHT/N"},
		{[]string{"ledger", "revert", "2"}, "Give --reason"},
		{because("ledger", "quarantine", "retry"), "which?"},
		{because("ledger", "quarantine", "retry", "--epoch", "1"), "give --agent as well"},
		{because("ledger", "quarantine", "discard", "1", "--agent", "gw-1"), "not both"},
		{because("agents", "lost", "gw-1"), "which start"},
		{[]string{"ledger", "trace", "gw-1"}, "neither a report"},
		{[]string{"ledger", "trace", "a/b/c"}, "the last two in digits"},
	} {
		if _, errs, code := e.run(c.words...); code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("quotactl %s: got exit %d, %q, want %q", strings.Join(c.words, " "), code, errs, c.want)
		}
	}
	bad := e.file("bad.csv", "time,tenant,limit,meter,admitted\nyesterday,acme,requests,requests,1\n")
	if _, errs, code := e.run(because("ledger", "backfill", "-f", bad, "--idempotency-key", "x")...); code != exitFailed || !strings.Contains(errs, `line 2: time "yesterday"`) {
		t.Errorf("a bad file: got exit %d, %q", code, errs)
	}
}

// Only a key of the role backfill brings in usage; it may do nothing else.
func TestBackfillHasItsOwnRole(t *testing.T) {
	e := start(t, nil)
	admin := strings.TrimSpace(e.ok("key", "create", "--role", "admin"))
	e.args = append(e.args, "--key", admin)
	backfill := strings.TrimSpace(e.ok("key", "create", "--role", "backfill"))
	file := e.file("usage.csv", "time,tenant,limit,meter,admitted\n"+e.now.UTC().Format(time.RFC3339)+",acme,requests,requests,100\n")
	words := because("ledger", "backfill", "-f", file, "--idempotency-key", "t-2")
	if _, errs, code := e.run(words...); code != exitFailed || !strings.Contains(errs, "this needs backfill") {
		t.Errorf("backfill by an admin: got exit %d, %q", code, errs)
	}
	e.args[len(e.args)-1] = backfill
	e.ok(words...)
	if _, errs, code := e.run("ledger", "corrections"); code != exitFailed || !strings.Contains(errs, "PermissionDenied") {
		t.Errorf("corrections by a key that may only bring in usage: got exit %d, %q", code, errs)
	}
}

// Who is stopped by a cap is told apart from who was suspended.
func TestGetCappedTenants(t *testing.T) {
	e, db := book(t)
	capped := strings.Replace(policyText, "    price:", "    spending_cap: {amount: 1.00 USD, at: stop}\n    price:", 1)
	e.ok("apply", "-f", e.file("capped.yaml", capped))
	e.settle(ledger.Row{Slot: e.now.Truncate(5 * time.Minute).Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Admitted: 1000})
	folded(t, db)
	eventually(t, "acme, which has new usage, is capped", func() bool {
		return strings.Contains(e.ok("get", "tenants", "-o", "csv"), "\nacme,paid,,,spending cap,")
	})
	if out := e.ok("get", "tenants", "-o", "json"); !strings.Contains(out, `"capped": true`) {
		t.Errorf("get tenants -o json printed\n%s", out)
	}
}

// Spreadsheets and some editors put a byte order mark first: it is no part of a file's first word.
func TestByteOrderMarks(t *testing.T) {
	const mark = "\xef\xbb\xbf"
	rows, err := readBackfill(strings.NewReader(mark + "time,tenant,limit,meter,admitted\n2026-03-02T09:00:00Z,acme,requests,requests,5\n"))
	if err != nil || len(rows) != 1 || rows[0].Admitted != 5 {
		t.Errorf("a backfill: %v, %v", rows, err)
	}
	e := start(t, nil)
	e.want("apply", e.ok("apply", "-f", e.file("marked.yaml", mark+policyText)), "nothing to change: version 1 is in force\n")
	if _, errs, code := e.run("apply", "-f", e.file("only.yaml", mark)); code != 1 || !strings.Contains(errs, "empty") {
		t.Errorf("a mark alone: exit %d, %q", code, errs)
	}
}
