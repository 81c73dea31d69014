package statements

import (
	"crypto/sha256"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqliteledger"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// kept has a key, a revoked one, a voided credit and two statements, the second of which a credit pays for.
func (b *billed) kept() {
	t := b.T
	t.Helper()
	if err := b.ApplyText(strings.Replace(servertest.PricedPolicy, "plan: free}", "plan: paid}", 1)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"good", "gone"} {
		if _, err := b.Policy.CreateKey(t.Context(), "ann", policystore.Key{ID: id, Role: policystore.RoleViewer, Hash: sha256.Sum256([]byte(id))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Policy.RevokeKey(t.Context(), "ann", "gone"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"c", "void"} {
		if _, err := b.s.GiveCredit(servertest.AsAnn(t.Context()), &quotav1.GiveCreditRequest{Id: id, Tenant: "acme", Amount: "50.00 USD"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.s.VoidCredit(servertest.AsAnn(t.Context()), &quotav1.VoidCreditRequest{Id: "void", Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	for month := time.November; month <= time.December; month++ {
		b.At = time.Date(2026, month, 1, 1, 0, 0, 0, time.UTC)
		b.Settle("gw", b.At.AddDate(0, 0, -9), 100, b.At)
		if _, err := b.close("", ""); err != nil {
			t.Fatal(err)
		}
	}
	c, err := ledger.NewCorrection(ledger.KindAdjust, "k", false, []ledger.Row{{Slot: b.At.Truncate(time.Hour).Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Admitted: 1}}, "r")
	if err == nil {
		_, err = b.Books.Correct(t.Context(), "ann", c) // the ledger writes the audit log, too
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Policy.SetSuspended(t.Context(), "ann", "acme", true); err != nil {
		t.Fatal(err)
	}
}

// What servers keep beside usage is sound, on each engine.
func TestRecordsAreSound(t *testing.T) {
	servertest.OnEngines(t, func(t *testing.T, on servertest.Engine) {
		b := newBilledOn(t, on)
		b.kept()
		if faults, more, err := b.Books.VerifyRecords(t.Context()); err != nil || len(faults) > 0 || more > 0 {
			t.Errorf("got %v, %d, %v, want none", faults, more, err)
		}
	})
}

// Whatever is changed of statements, credits, keys, versions and the audit log is found, by what and where.
func TestRecordsThatWereTamperedWith(t *testing.T) {
	b := newBilled(t)
	b.kept()
	db := b.Ledger.(*sqliteledger.Store).DB()
	exec := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	rows, err := db.QueryContext(t.Context(), "SELECT name FROM sqlite_master WHERE type = 'trigger'")
	if err != nil {
		t.Fatal(err)
	}
	var guards []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		guards = append(guards, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, name := range guards {
		exec("DROP TRIGGER " + name)
	}
	for _, c := range []struct{ statement, want string }{
		{"UPDATE statements SET document = replace(document, '3100', '100') WHERE number = 1", "statements acme/1: its digest does not fit its document"},
		{"UPDATE statements SET digest = 'x' WHERE number = 1", "statements acme/1: the audit log has no entry of it with that digest"},
		{"UPDATE statements SET height = 99 WHERE number = 2", "statements acme/2: it was made at block 99, and there is none of that height"},
		{"UPDATE statements SET block_hash = 'ab' WHERE number = 2", "statements acme/2: it was made at block 2 with the hash ab"},
		{"UPDATE statements SET period = '2026-09' WHERE number = 1", "statements acme/1: its document is of tenant acme, 2026-10"},
		{"UPDATE statements SET from_s = from_s + 300 WHERE number = 2", "statements acme/2: it begins at 2026-11-01T00:05:00Z, and the one before it ends at 2026-11-01T00:00:00Z"},
		{"DELETE FROM statements WHERE number = 1", "statements acme/2: the one before it is 0: there is a gap"},
		{"UPDATE credit_burns SET left_before = left_before + 100, left_after = left_after + 100 WHERE number = 2", "credit_burns c of statement 2: 1400 were left by then, and it was made of 1500"},
		{"DELETE FROM credit_burns WHERE number = 1 AND credit = 'c'", "statements acme/1: credits pay 3600 more by its document than were burnt"},
		{"UPDATE credits SET amount = amount + 100 WHERE id = 'c'", "credit_burns c of statement 1: 5100 were left by then"},
		{"INSERT INTO credits (id, tenant, currency, amount, priority, given_ms, expires, rollover, note, actor) VALUES ('mine', 'acme', 'USD', 1, 0, 0, 0, 0, '', 'me')", "credits mine: the audit log has no entry of it"},
		{"INSERT INTO credit_voids (credit, at_ms, reason, actor) VALUES ('c', 0, 'r', 'me')", "credit_voids c: the audit log has no entry of it"},
		{"UPDATE access_keys SET hash = 'x' WHERE id = 'good'", "access_keys good: its hash is not one"},
		{"UPDATE access_keys SET revoked_ms = 0 WHERE id = 'gone'", "access_keys gone: it is good, and was revoked by the audit log"},
		{"UPDATE access_keys SET revoked_ms = 1 WHERE id = 'good'", "access_keys good: it is revoked, and the audit log has no entry of that"},
		{"UPDATE access_keys SET id = 'mine' WHERE id = 'good'", "access_keys mine: the audit log has no entry of it"},
		{"INSERT INTO policy_versions (number, document, file, author, created_ms) VALUES (9, '', '', 'me', 0)", "policy_versions 9: the audit log has no entry of it"},
		{"DELETE FROM policy_versions WHERE number = 1", "policy_versions 2: the one before it is 0: there is a gap"},
		{"UPDATE audit_log SET actor = 'bob' WHERE number = 3", "audit_log 3: its chain is not that of its content and of the row before"},
		{"UPDATE audit_log SET chain = x'' WHERE number = 3", "audit_log 3: it has no chain, and the one before it has"},
		{"DELETE FROM audit_log WHERE number = 3", "audit_log 4: the one before it is 2: there is a gap"},
		{"DELETE FROM audit_log WHERE number = (SELECT max(number) FROM audit_log)", "were written"},
	} {
		table := regexp.MustCompile(`^(?:UPDATE|DELETE FROM|INSERT INTO) (\w+)`).FindStringSubmatch(c.statement)[1]
		exec("CREATE TABLE saved AS SELECT * FROM " + table)
		exec("PRAGMA foreign_keys = OFF")
		exec(c.statement)
		faults, _, err := b.Books.VerifyRecords(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range faults {
			found = found || strings.Contains(f.String(), c.want)
		}
		if !found {
			t.Errorf("%s: got %v, want one that says %q", c.statement, faults, c.want)
		}
		exec("DELETE FROM " + table)
		exec("INSERT INTO " + table + " SELECT * FROM saved")
		exec("DROP TABLE saved")
	}
	if faults, _, err := b.Books.VerifyRecords(t.Context()); err != nil || len(faults) > 0 {
		t.Errorf("put back: got %v, %v, want none", faults, err)
	}
}
