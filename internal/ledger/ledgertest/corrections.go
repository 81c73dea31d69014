package ledgertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

const operator = "k-operator"

func correction(t testing.TB, kind, key string, negative bool, reason string, rows ...ledger.Row) ledger.Correction {
	t.Helper()
	c, err := ledger.NewCorrection(kind, key, negative, rows, reason)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// audited are the actions in the audit log, oldest first. Each says what was before and after.
func audited(t testing.TB, e Engine) string {
	t.Helper()
	for _, of := range e.Query(t, "SELECT number, action, before, after FROM audit_log WHERE before NOT LIKE '{%' OR after NOT LIKE '{%'") {
		t.Errorf("the audit log has no before, or no after: %v", of)
	}
	return text(e.Query(t, "SELECT number, actor, action, object FROM audit_log ORDER BY number"))
}

// auditedUsage: the audit log of a correction has what blocks had of its slots and names, each place once. It
// also has what that comes to with the correction.
func auditedUsage(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	books := booksOf(s)
	a := agent{id: "a"}
	here, before := row(clock.Now(), "acme", 10), row(clock.Now().Add(-time.Hour), "acme", 500)
	other := row(clock.Now(), "zeta", 9000)
	if err := wantStatus(t.Context(), s, a.report(clock.Now(), here, before, other), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	correct := func(c ledger.Correction) {
		t.Helper()
		if _, err := books.Correct(t.Context(), operator, c); err != nil {
			t.Fatal(err)
		}
	}
	less := row(clock.Now(), "acme", 4)
	less.Denied = 1
	correct(correction(t, ledger.KindAdjust, "one", true, "billed twice", less))
	correct(correction(t, ledger.KindBackfill, "many", false, "found", row(clock.Now(), "acme", 1), row(clock.Now().Add(-time.Hour), "acme", 2), row(clock.Now().Add(-2*time.Hour), "acme", 3)))
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := books.Revert(t.Context(), operator, "the wrong ones", 2); err != nil {
		t.Fatal(err)
	}
	audited(t, e)
	for i, of := range e.Query(t, "SELECT before, after FROM audit_log ORDER BY number") {
		var was, is struct {
			Height int64
			Usage  ledger.Sum
		}
		if err := errors.Join(json.Unmarshal([]byte(of[0]), &was), json.Unmarshal([]byte(of[1]), &is)); err != nil {
			t.Fatal(err)
		}
		want := []struct {
			height  int64
			was, is ledger.Sum
		}{
			{1, ledger.Sum{Admitted: 10}, ledger.Sum{Admitted: 6, Denied: -1}}, {1, ledger.Sum{Admitted: 510}, ledger.Sum{Admitted: 516}},
			{2, ledger.Sum{Admitted: 512, Denied: -1}, ledger.Sum{Admitted: 506, Denied: -1}},
		}[i]
		if was.Height != want.height || was.Usage != want.was || is.Usage != want.is {
			t.Errorf("audit %d: got %s and %s, want %+v", i+1, of[0], of[1], want)
		}
	}
}

// corrections: units are added and taken away as facts of their own, once for each key. Usage has them at once,
// folded or not. Each is audited, and taken back once.
func corrections(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock, s := filled(t, fresh)
	books := booksOf(s)
	want := func(units int64) {
		t.Helper()
		if err := wantTotal(t.Context(), s, "acme", units); err != nil {
			t.Error(err)
		}
	}
	const before = 10 + 11 + 12 + 1 + 300 + 7
	want(before)
	at := row(clock.Now(), "acme", 40)
	less := correction(t, ledger.KindAdjust, "ticket-1", true, "billed twice", at)
	first, err := books.Correct(t.Context(), operator, less)
	if err != nil || first.Number != 1 {
		t.Fatalf("adjust: %+v, %v", first, err)
	}
	want(before - 40)
	if again, err := books.Correct(t.Context(), "k-other", less); err != nil || again.Number != 1 || again.Actor != operator {
		t.Errorf("the same again: got %+v, %v, want what is there", again, err)
	}
	other := correction(t, ledger.KindAdjust, "ticket-1", true, "billed twice", row(clock.Now(), "acme", 41))
	if _, err := books.Correct(t.Context(), operator, other); !errors.Is(err, ledger.ErrTaken) {
		t.Errorf("the same key with other content: got %v, want ErrTaken", err)
	}
	want(before - 40)
	// Half is folded, half is not.
	if n, _, err := s.Fold(t.Context(), clock.Now()); err != nil || n != 3 {
		t.Fatalf("fold: got %d, %v, want two reports and a correction", n, err)
	}
	want(before - 40)
	back := clock.Now().Add(-24 * time.Hour)
	second, err := books.Correct(t.Context(), operator, correction(t, ledger.KindBackfill, "import-7", false, "before the migration",
		row(back, "acme", 500), row(back, "zeta", 600), row(back.Add(time.Hour), "acme", 1000)))
	if err != nil || second.Number != 2 || second.Rows != 3 {
		t.Fatalf("backfill: %+v, %v", second, err)
	}
	want(before - 40 + 1500)
	reverted, err := books.Revert(t.Context(), operator, "the wrong file", 2)
	if err != nil || reverted.Reverts != 2 || reverted.Number != 3 {
		t.Fatalf("revert: %+v, %v", reverted, err)
	}
	want(before - 40)
	if again, err := books.Revert(t.Context(), operator, "the wrong file", 2); err != nil || again.Number != 3 {
		t.Errorf("the same revert again: got %+v, %v, want what is there", again, err)
	}
	if _, err := books.Revert(t.Context(), operator, "to be sure", 2); !errors.Is(err, ledger.ErrTaken) {
		t.Errorf("another revert: got %v, want ErrTaken", err)
	}
	if _, err := books.Revert(t.Context(), operator, "no", 3); !errors.Is(err, ledger.ErrCorrection) {
		t.Errorf("a revert of a revert: got %v, want ErrCorrection", err)
	}
	if _, err := books.Revert(t.Context(), operator, "no", 99); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a revert of nothing: got %v, want ErrNotFound", err)
	}
	verify(t, s)
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	want(before - 40)
	WantRollups(t, e)
	if v := verify(t, s); v.Height != 5 {
		t.Errorf("got %d blocks, want 5", v.Height)
	}
	if got, want := audited(t, e), "1 k-operator ledger.adjust 1\n2 k-operator ledger.backfill 2\n3 k-operator ledger.revert 3\n"; got != want {
		t.Errorf("audited: got\n%swant\n%s", got, want)
	}
	all, err := books.Corrections(t.Context(), 0, 10)
	if err != nil || len(all) != 3 || all[0].Number != 3 || all[1].RevertedBy != 3 || all[1].Height != 5 || all[2].Height != 4 || all[2].RevertedBy != 0 {
		t.Errorf("corrections: got %+v, %v", all, err)
	}
	// Negative sums are answered as such.
	if _, err := books.Correct(t.Context(), operator, correction(t, ledger.KindAdjust, "ticket-2", true, "a credit", row(clock.Now(), "poor", 5))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := wantTotal(t.Context(), s, "poor", -5); err != nil {
			t.Error(err)
		}
		if _, err := drain(t.Context(), s, clock.Now()); err != nil {
			t.Fatal(err)
		}
	}
}

// early: a ledger that nobody has reported to yet takes corrections.
func early(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	if _, err := booksOf(s).Correct(t.Context(), operator, correction(t, ledger.KindBackfill, "k", false, "r", row(clock.Now(), "acme", 5))); err != nil {
		t.Fatal(err)
	}
	if err := wantTotal(t.Context(), s, "acme", 5); err != nil {
		t.Error(err)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	verify(t, s)
}

// refusedCorrections change nothing, and are not audited.
func refusedCorrections(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock, s := filled(t, fresh)
	books := booksOf(s)
	for _, c := range []struct {
		name string
		row  ledger.Row
		want string
	}{
		{"an unknown tenant", row(clock.Now(), "unknown-9", 1), "tenant unknown-9 is not known"},
		{"no tenant", row(clock.Now(), "", 1), "no tenant is named"},
		{"a slot that is to come", row(clock.Now().Add(time.Hour), "acme", 1), "more than one slot ahead"},
		{"a slot before all partitions", row(clock.Now().AddDate(-1, 0, 0), "acme", 1), "before the oldest partition"},
		{"no slot's start", ledger.Row{Slot: clock.Now().Truncate(5*time.Minute).Unix() + 1, Tenant: "acme", Limit: "requests", Admitted: 1}, "not the start of a slot"},
	} {
		if _, err := books.Correct(t.Context(), operator, correction(t, ledger.KindAdjust, "k", false, "r", c.row)); !errors.Is(err, ledger.ErrCorrection) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want ErrCorrection that says %q", c.name, err, c.want)
		}
	}
	entry := correction(t, ledger.KindAdjust, "k", false, "r", row(clock.Now(), "acme", 1))
	entry.Entry = ledger.EntryID{Height: 1}
	if _, err := books.Correct(t.Context(), operator, entry); !errors.Is(err, ledger.ErrCorrection) || !strings.Contains(err.Error(), "not of the slot and names of entry 1/0") {
		t.Errorf("of another entry: got %v", err)
	}
	entry.Entry = ledger.EntryID{Height: 9}
	if _, err := books.Correct(t.Context(), operator, entry); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("of no entry: got %v", err)
	}
	if got := audited(t, e) + text(e.Query(t, "SELECT number FROM corrections")); got != "" {
		t.Errorf("what was refused left\n%s", got)
	}
}

// ownKeys: keys that the ledger gives its own corrections are not left to callers. One that a caller took before they
// were refused goes on as it is, and keeps nothing from being taken back or released.
func ownKeys(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	known := false
	s := e.Open(t, ledger.Options{Now: clock.Now, Accept: func(_ string, r ledger.Row) error {
		if r.Tenant == "new" && !known {
			return errors.New("it is not known")
		}
		return nil
	}})
	books := booksOf(s)
	a := agent{id: "a"}
	if err := wantStatus(t.Context(), s, a.report(clock.Now(), row(clock.Now(), "new", 20)), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	correct := func(key string, units int64) (ledger.Correction, error) {
		return books.Correct(t.Context(), operator, correction(t, ledger.KindAdjust, key, false, "r", row(clock.Now(), "acme", units)))
	}
	for units, key := range []string{"ticket", "revert/1", "revert/1/2", "release/1"} {
		c, err := correct(fmt.Sprint("k", units), int64(units)+1)
		if err != nil {
			t.Fatal(err)
		}
		c.Key = key // as releases before this one took them
		c.Digest = c.Sum()
		e.Tamper(t, fmt.Sprintf("UPDATE corrections SET key = '%s', digest = %s%x' WHERE number = %d", c.Key, e.Bytes, c.Digest, c.Number))
	}
	if again, err := correct("revert/1", 2); err != nil || again.Number != 2 {
		t.Errorf("the same again of one that is there: got %+v, %v, want it", again, err)
	}
	for _, key := range []string{"revert/1", "revert/9", "release/9", "release/"} {
		if _, err := correct(key, 50); !errors.Is(err, ledger.ErrCorrection) || !strings.Contains(err.Error(), "revert/") {
			t.Errorf("key %s: got %v, want ErrCorrection that names what keys may not begin with", key, err)
		}
	}
	for _, reason := range []string{"why", "why", "else"} {
		c, err := books.Revert(t.Context(), operator, reason, 1)
		switch {
		case reason == "else" && !errors.Is(err, ledger.ErrTaken):
			t.Errorf("another revert: got %v, want ErrTaken", err)
		case reason == "why" && (err != nil || c.Number != 5 || c.Reverts != 1):
			t.Errorf("revert: got %+v, %v, want number 5", c, err)
		}
	}
	known = true
	if got, err := books.Retry(t.Context(), operator, "it is there now", []int64{1}); err != nil || got.Correction != 6 {
		t.Errorf("release: got %+v, %v, want number 6", got, err)
	}
	if _, err := books.Revert(t.Context(), operator, "no", 6); err != nil {
		t.Errorf("revert of a release: %v", err)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	if err := wantTotal(t.Context(), s, "acme", 2+3+4); err != nil {
		t.Error(err)
	}
	verify(t, s)
}

// quarantined: rows are released once, by a correction, when they may become entries,
// and what is discarded stays so.
func quarantined(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	known := map[string]bool{}
	s := e.Open(t, ledger.Options{Now: clock.Now, Accept: func(_ string, r ledger.Row) error {
		if strings.HasPrefix(r.Tenant, "new") && !known[r.Tenant] {
			return fmt.Errorf("tenant %s is not known", r.Tenant)
		}
		return nil
	}})
	books := booksOf(s)
	a := agent{id: "a"}
	if err := wantStatus(t.Context(), s, a.report(clock.Now(), row(clock.Now(), "acme", 1), row(clock.Now(), "new-1", 20), row(clock.Now(), "new-2", 300)), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	if err := wantStatus(t.Context(), s, a.report(clock.Now(), row(clock.Now(), "new-1", 4000)), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	bad := a.report(clock.Now(), row(clock.Now(), "acme", 1))
	bad.Digest[0]++
	if err := wantStatus(t.Context(), s, bad, ledger.Rejected); err != nil {
		t.Fatal(err)
	}
	page := func(q ledger.QuarantineQuery) string {
		t.Helper()
		kept, err := books.Quarantine(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, k := range kept {
			fmt.Fprintf(&b, "%d %s row %d", k.ID, k.Of, k.Row)
			if k.Resolution != nil {
				fmt.Fprintf(&b, " correction %d", k.Resolution.Correction)
			}
			b.WriteString("; ")
		}
		return b.String()
	}
	if got, want := page(ledger.QuarantineQuery{N: 10}), "1 a/0/1 row 1; 2 a/0/1 row 2; 3 a/0/2 row 0; 4 a/0/3 row -1; "; got != want {
		t.Fatalf("quarantine: got %s, want %s", got, want)
	}
	if got, want := page(ledger.QuarantineQuery{N: 2, After: 1, Agent: "a"}), "2 a/0/1 row 2; 3 a/0/2 row 0; "; got != want {
		t.Errorf("a page: got %s, want %s", got, want)
	}
	if got := page(ledger.QuarantineQuery{N: 2, Agent: "b"}); got != "" {
		t.Errorf("another agent's: got %s", got)
	}
	known["new-1"] = true
	done, err := books.Retry(t.Context(), operator, "the tenant was created late", []int64{3, 1, 2, 1})
	if err != nil || done.Correction != 1 || fmt.Sprint(done.Released) != "[1 3]" || len(done.Refused) != 1 || done.Refused[0].ID != 2 {
		t.Fatalf("retry: got %+v, %v, want 1 and 3 released", done, err)
	}
	if err := wantTotal(t.Context(), s, "new-1", 4020); err != nil {
		t.Error(err)
	}
	if _, err := books.Retry(t.Context(), operator, "again", []int64{1}); !errors.Is(err, ledger.ErrTaken) {
		t.Errorf("retry of what was released: got %v, want ErrTaken", err)
	}
	if err := books.Discard(t.Context(), operator, "again", []int64{1}); !errors.Is(err, ledger.ErrTaken) {
		t.Errorf("discard of what was released: got %v, want ErrTaken", err)
	}
	if _, err := books.Retry(t.Context(), operator, "whole", []int64{4}); !errors.Is(err, ledger.ErrCorrection) {
		t.Errorf("retry of a whole report: got %v, want ErrCorrection", err)
	}
	if err := books.Discard(t.Context(), operator, "no such customer", []int64{2, 4}); err != nil {
		t.Fatal(err)
	}
	if _, err := books.Retry(t.Context(), operator, "after all", []int64{2}); !errors.Is(err, ledger.ErrTaken) {
		t.Errorf("retry of what was discarded: got %v, want ErrTaken", err)
	}
	if _, err := books.Retry(t.Context(), operator, "nothing", []int64{99}); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("retry of nothing: got %v, want ErrNotFound", err)
	}
	if got := page(ledger.QuarantineQuery{N: 10}); got != "" {
		t.Errorf("left in quarantine: got %s", got)
	}
	if got, want := page(ledger.QuarantineQuery{N: 10, All: true}), "1 a/0/1 row 1 correction 1; 2 a/0/1 row 2 correction 0; 3 a/0/2 row 0 correction 1; 4 a/0/3 row -1 correction 0; "; got != want {
		t.Errorf("all of quarantine: got %s, want %s", got, want)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	if err := wantTotal(t.Context(), s, "", 4021); err != nil {
		t.Error(err)
	}
	verify(t, s)
	WantRollups(t, e)
	if got, want := audited(t, e), "1 k-operator ledger.release quarantine 1,3\n2 k-operator ledger.discard quarantine 2,4\n"; got != want {
		t.Errorf("audited: got\n%swant\n%s", got, want)
	}
	// A release is taken back like any correction.
	if _, err := books.Revert(t.Context(), operator, "was a test", 1); err != nil {
		t.Fatal(err)
	}
	if err := wantTotal(t.Context(), s, "new-1", 0); err != nil {
		t.Error(err)
	}
}

// traces: from a report to its block and entries, and from an entry to its reports.
func traces(t *testing.T, fresh func(testing.TB) Engine) {
	_, clock, s := filled(t, fresh)
	books := booksOf(s)
	report := func(agent string, epoch, seq int64) *ledger.ReportTrace {
		t.Helper()
		r, err := books.TraceReport(t.Context(), ledger.ReportID{Epoch: ledger.Epoch{Agent: agent, Epoch: epoch}, Seq: seq})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := report("b", 4, 2)
	if r.Block.Height != 2 || r.Queued || len(r.Rows) != 3 || r.Rows[0].Entry != (ledger.EntryID{Height: 2, N: 0}) || r.Rows[1].Quarantined == 0 || r.Rows[2].Entry != (ledger.EntryID{}) {
		t.Errorf("b/4/2: got %+v, want one row in entry 2/0 and two in quarantine", r)
	}
	entry, err := books.TraceEntry(t.Context(), r.Rows[0].Entry)
	if err != nil {
		t.Fatal(err)
	}
	var from []string
	var sum int64
	for _, share := range entry.Reports {
		from = append(from, share.ID.String())
		sum += share.Sum.Admitted
	}
	if got := strings.Join(from, " "); got != "a/0/3 b/4/2 c/0/1" || sum != entry.Row.Admitted || entry.Block != r.Block {
		t.Errorf("entry 2/0: got reports %s of %d units, %+v", got, sum, entry)
	}
	if r := report("a", 0, 7); !r.Queued || r.Block.Height != 0 {
		t.Errorf("a/0/7: got %+v, want it queued", r)
	}
	if r := report("a", 0, 2); r.Queued || r.Block.Height != 0 || len(r.Rows) != 0 {
		t.Errorf("a/0/2: got %+v, want a heartbeat", r)
	}
	for _, id := range []ledger.ReportID{{}, {Epoch: ledger.Epoch{Agent: "a"}, Seq: 99}} {
		if _, err := books.TraceReport(t.Context(), id); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", id, err)
		}
	}
	if _, err := books.TraceEntry(t.Context(), ledger.EntryID{Height: 2, N: 99}); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("entry 2/99: got %v, want ErrNotFound", err)
	}
	// A correction of an entry names it, and its own entry names the correction.
	row := entry.Row
	row.Admitted, row.Overage, row.Denied = 7, 0, 0
	c := correction(t, ledger.KindAdjust, "ticket", true, "goodwill", row)
	c.Entry = entry.ID
	if _, err := books.Correct(t.Context(), operator, c); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	if entry, err = books.TraceEntry(t.Context(), entry.ID); err != nil || fmt.Sprint(entry.Corrected) != "[1]" {
		t.Errorf("corrected: got %+v, %v", entry, err)
	}
	kept, err := books.Correction(t.Context(), 1)
	if err != nil || kept.Height != 4 || kept.Entry != entry.ID {
		t.Fatalf("correction: got %+v, %v", kept, err)
	}
	last, err := books.TraceEntry(t.Context(), ledger.EntryID{Height: 4, N: 2})
	if err != nil || last.Correction == nil || last.Correction.Number != 1 || last.Row.Admitted != -7 || len(last.Reports) != 0 {
		t.Errorf("entry 4/2: got %+v, %v, want the correction's", last, err)
	}
}
