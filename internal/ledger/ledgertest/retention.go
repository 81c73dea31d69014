package ledgertest

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
)

// year is a ledger of fourteen months, March 2026 to April 2027. One epoch goes on through all of them, and
// some close. It has late usage, corrections, and rows in quarantine.
func year(t testing.TB, fresh func(testing.TB) Engine) (Engine, *Clock, ledger.Store) {
	t.Helper()
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now, Accept: refuse})
	a, b := agent{id: "a"}, agent{id: "b", epoch: 4}
	settle := func(reports ...ledger.Report) {
		t.Helper()
		for _, r := range reports {
			if err := wantStatus(t.Context(), s, r, ledger.Settled); err != nil {
				t.Fatal(err)
			}
		}
	}
	for month := range 13 {
		for range 2 {
			at := clock.Now()
			settle(a.report(at, row(at, "acme", 10), row(at.Add(-time.Hour), "zeta", 1)), a.report(at),
				b.report(at, row(at, "acme", 100), row(at, "unknown-1", 5)))
			if _, err := drain(t.Context(), s, at); err != nil {
				t.Fatal(err)
			}
			clock.Advance(15 * time.Minute) // once over the month's end, with usage of both months in one block
		}
		late := clock.Now().AddDate(0, 0, -1)
		last := agent{id: "c", epoch: int64(month)}
		r := last.report(clock.Now(), row(late, "acme", 7), row(clock.Now(), "acme", 3))
		r.Closed = true
		r.Digest = r.Sum()
		settle(r)
		c, err := ledger.NewCorrection(ledger.KindAdjust, fmt.Sprint("month ", month), month%2 == 1, []ledger.Row{row(late, "acme", 2)}, "r")
		if err == nil {
			_, err = booksOf(s).Correct(t.Context(), "me", c)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := drain(t.Context(), s, clock.Now()); err != nil {
			t.Fatal(err)
		}
		now := clock.Now()
		end := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC).Add(-10 * time.Minute)
		clock.Advance(end.Sub(now))
	}
	return e, clock, s
}

func retention(dir string, before time.Time) sqlbooks.Retention {
	return sqlbooks.Retention{Before: before, Dir: dir, Actor: "keeper", Wait: 0}
}

func date(y int, m time.Month) time.Time { return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC) }

// checkArchives checks archives that have to be sound.
func checkArchives(t testing.TB, o *sqlbooks.Owner, dir string) *sqlbooks.CheckedArchives {
	t.Helper()
	c, err := o.Check(t.Context(), dir, nil)
	if err != nil {
		t.Fatalf("check archives: %v", err)
	}
	for _, f := range c.Faults {
		t.Errorf("check archives: %s", f)
	}
	return c
}

// retained: archived facts are out of the ledger, and still accounted for.
func retained(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock, s := year(t, fresh)
	o, dir := e.Owner(t, clock.Now), t.TempDir()
	queries := []ledger.Query{
		{By: ledger.ByTotal}, {Tenant: "acme", By: ledger.ByHour}, {Tenant: "acme", By: ledger.ByDay}, {By: ledger.ByMonth},
		{Tenant: "zeta", By: ledger.ByLimit}, {Tenant: "acme", By: ledger.ByAttribute, From: date(2026, 6), To: date(2026, 9)},
	}
	usage := func() (all []string) {
		t.Helper()
		for _, q := range queries {
			u, err := s.Usage(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%+v", u.Rows))
		}
		for _, q := range []ledger.BreakdownQuery{{By: []string{ledger.DimTenant}, Every: ledger.EveryMonth}, {By: []string{ledger.DimMeter}, Every: ledger.EveryHour}, {Top: 3, TopBy: "admitted", By: []string{ledger.DimTenant}}} {
			rows := ""
			if _, err := booksOf(s).Breakdown(t.Context(), q, func(r *ledger.BreakdownRow) error { rows += fmt.Sprintf("%+v\n", *r); return nil }, nil); err != nil {
				t.Fatal(err)
			}
			all = append(all, rows)
		}
		return all
	}
	before, was := verify(t, s), usage()
	// From here on usage of before February 2027 is not taken: entries of before January go.
	cutoff := date(2027, 1)
	planned := retention(dir, cutoff)
	planned.Plan = true
	plan, err := o.Retain(t.Context(), planned)
	if err != nil {
		t.Fatal(err)
	}
	done, err := o.Retain(t.Context(), retention(dir, cutoff))
	if err != nil {
		t.Fatal(err)
	}
	if len(done) != 2*11 || len(plan) != len(done) { // February to December
		t.Fatalf("archived: got %d files, planned %d, want 22", len(done), len(plan))
	}
	var reports, entries int64
	for i, a := range done {
		if p := plan[i]; p.Rows != a.Rows || p.File != a.File || !p.Month.Equal(a.Month) {
			t.Errorf("archived %+v, planned %+v", a, p)
		}
		if a.Fact == ledger.FactReports {
			reports += a.Rows
		} else {
			entries += a.Rows
		}
	}
	after := verify(t, s)
	if after.Archived.Reports != reports || after.Archived.Blocks == 0 || after.Archived.Rollups == 0 || after.Archived.Before != cutoff.Unix() {
		t.Errorf("verified after retention: %+v, archived were %d reports", after.Archived, reports)
	}
	if got, want := after.Counts.Reports, before.Counts.Reports; got != want {
		t.Errorf("verified %d reports, want %d as before", got, want)
	}
	if got, want := after.Counts.Entries, before.Counts.Entries-entries; got != want {
		t.Errorf("there are %d entries, want %d", got, want)
	}
	if after.Hash != before.Hash {
		t.Errorf("the chain leads to %x, want %x", after.Hash, before.Hash)
	}
	for i, now := range usage() {
		if now != was[i] {
			t.Errorf("usage %d: got\n%s, want\n%s", i, now, was[i])
		}
	}
	c := checkArchives(t, o, dir)
	if c.Files != 22 || c.Reports != reports || c.Entries != entries || c.Blocks == 0 || c.Unchecked != 0 {
		t.Errorf("checked %+v, want %d reports and %d entries", c, reports, entries)
	}
	// Once more is nothing to do.
	if again, err := o.Retain(t.Context(), retention(dir, cutoff)); err != nil || len(again) != 0 {
		t.Errorf("again: got %v, %v, want nothing", again, err)
	}
	audited(t, e)
	if got := text(e.Query(t, "SELECT count(*) FROM audit_log WHERE actor = 'keeper' AND action = 'ledger.archive'")); got != "11\n" {
		t.Errorf("audited %s months, want 11", got)
	}
	t.Run("Breakdowns", func(t *testing.T) { archivedBreakdowns(t, s) })
	t.Run("Live", func(t *testing.T) { afterRetention(t, clock, s) })
	t.Run("Tampered", func(t *testing.T) {
		tampered(t, e, s, []tamper{
			{"an archived report less", "DELETE FROM archived_reports WHERE agent = 'a' AND seq = 2", "reports a/0/3: the one before it is 1: the epoch has a gap"},
			{"the first report less", "DELETE FROM archived_reports WHERE agent = 'b' AND seq = 1", "b/4"},
			{"an archived report's totals", "UPDATE archived_reports SET total_after = total_after + 1 WHERE agent = 'a' AND seq = 3", "and the one before it ends at"},
			{"what archived reports hold", "UPDATE archived_settled SET units = units + 1 WHERE agent = 'a'", "settled a/0/requests: it says"},
			{"an archived report's rows held back", "UPDATE archived_reports SET held = x'' WHERE agent = 'b' AND seq = 1", "quarantine b/4/1: its report has no rows there"},
			{"an archived block's hash", "UPDATE blocks SET hash = previous WHERE height = 5", "blocks 6: it does not chain to the hash of the block below"},
			{"an archived block less", "DELETE FROM blocks WHERE height = 5", "blocks 6: the one below it is 4"},
			{"a live entry's units", "UPDATE entries SET admitted = admitted + 1 WHERE height = (SELECT max(height) FROM entries) AND n = 0", "entries"},
			{"a live block's entries less", "DELETE FROM entries WHERE height = (SELECT max(height) FROM entries)", "blocks"},
		})
	})
	t.Run("Files", func(t *testing.T) { tamperedFiles(t, o, dir) })
}

// archivedBreakdowns: usage that was made of archived entries is refused, not less than it was.
func archivedBreakdowns(t *testing.T, s ledger.Store) {
	kolkata, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string // empty where it can be answered
		q          ledger.BreakdownQuery
	}{
		{"slots", "usage by slot", ledger.BreakdownQuery{Every: ledger.EverySlot}},
		{"slots of a live month", "", ledger.BreakdownQuery{Every: ledger.EverySlot, From: date(2027, 1)}},
		{"peaks", "usage by slot", ledger.BreakdownQuery{Peak: true}},
		{"what came since an archived block", "usage by slot", ledger.BreakdownQuery{Since: 3}},
		{"what came of a live month since an archived block", "", ledger.BreakdownQuery{Since: 3, From: date(2027, 1)}},
		{"as it was", "a height below", ledger.BreakdownQuery{Height: 3}},
		{"of a live month as it was", "", ledger.BreakdownQuery{Height: 3, From: date(2027, 1)}},
		{"a cut hour", "within an hour", ledger.BreakdownQuery{From: date(2026, 5).Add(time.Minute)}},
		{"within an hour", "within an hour", ledger.BreakdownQuery{From: date(2026, 6).Add(time.Minute), To: date(2026, 6).Add(2 * time.Minute)}},
		{"a cut end", "within an hour", ledger.BreakdownQuery{To: date(2026, 6).Add(time.Minute)}},
		{"days of half an hour off", "within an hour", ledger.BreakdownQuery{Every: ledger.EveryDay, Zone: kolkata, To: date(2026, 6)}},
		{"plans", "", ledger.BreakdownQuery{By: []string{ledger.DimPlan}}},
	} {
		_, err := booksOf(s).Breakdown(t.Context(), c.q, func(*ledger.BreakdownRow) error { return nil }, nil)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (!errors.Is(err, ledger.ErrQuery) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want it refused for %q", c.name, err, c.want)
		}
	}
}

// archivedUnderABreakdown: months that are archived between two chunks of a breakdown that
// needs their entries end it: never is it told less than there was.
func archivedUnderABreakdown(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock, s := year(t, fresh)
	o, dir := e.Owner(t, clock.Now), t.TempDir()
	during := func(q ledger.BreakdownQuery, do func()) (units int64, err error) {
		_, err = booksOf(s).Breakdown(t.Context(), q, func(r *ledger.BreakdownRow) error { units += r.Admitted; return nil }, func(p ledger.Progress) {
			if p.Done == 1 {
				do()
			}
		})
		return units, err
	}
	byHour := ledger.BreakdownQuery{Every: ledger.EveryHour, By: []string{ledger.DimTenant}}
	before, err := during(byHour, func() {})
	if err != nil {
		t.Fatal(err)
	}
	retain := func(before time.Time) func() {
		return func() {
			if _, err := o.Retain(t.Context(), retention(dir, before)); err != nil {
				t.Error(err)
			}
		}
	}
	units, err := during(ledger.BreakdownQuery{Every: ledger.EverySlot, By: []string{ledger.DimTenant}}, retain(date(2026, 11)))
	if !errors.Is(err, ledger.ErrQuery) || !strings.Contains(err.Error(), "usage by slot") {
		t.Errorf("slots: got %d units of %d, %v; want it refused", units, before, err)
	}
	// What roll-ups tell goes on.
	if units, err = during(byHour, retain(date(2026, 12))); err != nil || units != before {
		t.Errorf("hours: got %d units, %v, want %d", units, err, before)
	}
}

// afterRetention: what servers answer of months that are archived.
func afterRetention(t *testing.T, clock *Clock, s ledger.Store) {
	books := booksOf(s)
	trace, err := books.TraceReport(t.Context(), ledger.ReportID{Epoch: ledger.Epoch{Agent: "a"}, Seq: 1})
	if err != nil || trace.File != "reports-2026-03.jsonl.gz" || trace.Block.Height != 1 {
		t.Errorf("trace of an archived report: got %+v, %v, want its file and block", trace, err)
	}
	if _, err := books.TraceEntry(t.Context(), ledger.EntryID{Height: 1}); !errors.Is(err, ledger.ErrNotFound) || !strings.Contains(err.Error(), "entries-2026-03.jsonl.gz") {
		t.Errorf("trace of an archived entry: got %v, want its file", err)
	}
	k, err := books.Correction(t.Context(), 1)
	if err != nil || k.Height == 0 {
		t.Errorf("an archived correction: got %+v, %v, want its block", k, err)
	}
	if _, err := books.Revert(t.Context(), "me", "r", 1); !errors.Is(err, ledger.ErrCorrection) || !strings.Contains(err.Error(), "not taken any more") {
		t.Errorf("revert of an archived correction: got %v, want it refused", err)
	}
	cut := ledger.Query{Tenant: "acme", From: date(2026, 5).Add(time.Minute), To: date(2026, 6)}
	if _, err := s.Usage(t.Context(), cut); !errors.Is(err, ledger.ErrQuery) || !strings.Contains(err.Error(), "archived") {
		t.Errorf("usage of a cut hour: got %v, want it refused", err)
	}
	sealed := ledger.SealedQuery{Tenant: "acme", From: date(2026, 5).Unix(), To: date(2026, 6).Unix()}
	if _, err := books.Sealed(t.Context(), sealed); !errors.Is(err, ledger.ErrQuery) || !strings.Contains(err.Error(), "archived") {
		t.Errorf("a statement of an archived month: got %v, want it refused", err)
	}
	sealed.Tenant = "nobody"
	if _, err := books.Sealed(t.Context(), sealed); err != nil {
		t.Errorf("a statement of nothing: %v", err)
	}
	sealed = ledger.SealedQuery{Tenant: "acme", From: date(2027, 1).Unix(), To: date(2027, 2).Unix()}
	if _, err := books.Sealed(t.Context(), sealed); err != nil {
		t.Errorf("a statement of the oldest month that is there: %v", err)
	}
	// A report that comes again is known by the digest that stayed; with other content it is a twin's.
	first := agent{id: "a"}
	again := first.report(Start, row(Start, "acme", 10), row(Start.Add(-time.Hour), "zeta", 1))
	if err := wantStatus(t.Context(), s, again, ledger.Already); err != nil {
		t.Error(err)
	}
	twin := agent{id: "b", epoch: 4}
	if err := wantStatus(t.Context(), s, twin.report(Start, row(Start, "acme", 11)), ledger.Fenced); err != nil {
		t.Error(err)
	}
	// Rows of before the retired months are kept aside, the rest of their report settles.
	late := agent{id: "late"}
	r := late.report(clock.Now(), row(date(2026, 12), "acme", 5), row(date(2027, 1), "acme", 6), row(clock.Now(), "late", 7))
	if err := wantStatus(t.Context(), s, r, ledger.Settled); err != nil {
		t.Error(err)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Error(err)
	}
	kept, err := books.Quarantine(t.Context(), ledger.QuarantineQuery{N: 10, Agent: "late"})
	if err != nil || len(kept) != 2 || !strings.Contains(kept[1].Reason, "before the oldest") {
		t.Errorf("quarantine: got %+v, %v, want two rows", kept, err)
	}
	if err := wantTotal(t.Context(), s, "late", 7); err != nil {
		t.Error(err)
	}
	if wrong, err := books.Rebuild(t.Context(), operator, nil); err != nil || wrong != 0 {
		t.Errorf("rebuild: got %d roll-ups wrong, %v", wrong, err)
	}
	verify(t, s)
}

// tamperedFiles: whatever is changed in files is found.
func tamperedFiles(t *testing.T, o *sqlbooks.Owner, dir string) {
	path := func(name string) string { return filepath.Join(dir, name) }
	pack := func(name string, edit func(string) string) func() error {
		return func() error {
			f, err := os.Open(path(name))
			if err != nil {
				return err
			}
			defer f.Close()
			zip, err := gzip.NewReader(f)
			if err != nil {
				return err
			}
			all, err := io.ReadAll(zip)
			if err != nil {
				return err
			}
			var b strings.Builder
			w := gzip.NewWriter(&b)
			if _, err := io.WriteString(w, edit(string(all))); err != nil {
				return err
			}
			return errors.Join(w.Close(), os.WriteFile(path(name), []byte(b.String()), 0o600))
		}
	}
	for _, c := range []struct {
		name, file, want string
		change           func() error
	}{
		{"a file less", "entries-2026-06.jsonl.gz", "no such file", func() error { return os.Remove(path("entries-2026-06.jsonl.gz")) }},
		{"a file cut short", "reports-2026-06.jsonl.gz", "unexpected EOF", func() error { return os.Truncate(path("reports-2026-06.jsonl.gz"), 200) }},
		{"a file of another month", "reports-2026-06.jsonl.gz", "shall be", func() error {
			return os.Rename(path("reports-2026-07.jsonl.gz"), path("reports-2026-06.jsonl.gz"))
		}},
		{"a report's units", "reports-2026-06.jsonl.gz", "bad report", pack("reports-2026-06.jsonl.gz", func(s string) string {
			return strings.Replace(s, `"total_before":`, `"total_before":1`, 1)
		})},
		{"an entry's units", "entries-2026-06.jsonl.gz", "SHA-256", pack("entries-2026-06.jsonl.gz", func(s string) string {
			return strings.Replace(s, `"admitted":`, `"admitted":1`, 1)
		})},
		{"an entry less", "entries-2026-06.jsonl.gz", "rows", pack("entries-2026-06.jsonl.gz", func(s string) string {
			lines := strings.SplitAfter(s, "\n")
			return strings.Join(append(lines[:1:1], lines[2:]...), "")
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			saved := t.TempDir()
			if err := os.CopyFS(filepath.Join(saved, "all"), os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(filepath.Join(saved, "all")))); err != nil {
					t.Error(err)
				}
			}()
			if err := c.change(); err != nil {
				t.Fatal(err)
			}
			got, err := o.Check(t.Context(), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Faults) == 0 || got.Faults[0].Which != c.file || !strings.Contains(got.Faults[0].What, c.want) {
				t.Errorf("got %v, want a fault of %s that says %q", got.Faults, c.file, c.want)
			}
			if strings.HasPrefix(c.file, "entries") && got.Unchecked == 0 {
				t.Error("blocks of the file's entries count as checked")
			}
		})
	}
	checkArchives(t, o, dir) // all of it was put back
}

// retainedKilled: retention that ends before any of its steps leaves a sound ledger, and
// the next one goes on from there.
func retainedKilled(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock, s := year(t, fresh)
	o, dir := e.Owner(t, clock.Now), t.TempDir()
	killed := errors.New("killed")
	seen := map[string]bool{}
	for n := 1; ; n++ {
		r := retention(dir, date(2026, 7))
		steps, last := 0, ""
		r.Step = func(_ time.Time, what string) error {
			if steps++; steps == n {
				last = what
				return killed
			}
			return nil
		}
		_, err := o.Retain(t.Context(), r)
		if err == nil {
			break
		}
		if !errors.Is(err, killed) {
			t.Fatal(err)
		}
		seen[last] = true
		if v := verify(t, s); t.Failed() {
			t.Fatalf("after it was killed when %s: %+v", last, v.Archived)
		}
		if n > 100 {
			t.Fatal("it never ends")
		}
	}
	for _, what := range []string{"retired", "reports written", "reports renamed", "entries written", "entries renamed", "committing", "dropped"} {
		if !seen[what] {
			t.Errorf("it was never killed when %s", what)
		}
	}
	if v := verify(t, s); v.Archived.Before != date(2026, 7).Unix() {
		t.Errorf("archived: %+v, want all before July", v.Archived)
	}
	checkArchives(t, o, dir)
	parts, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(parts) != 2*5 {
		t.Errorf("files: got %v, %v, want two of each month", parts, err)
	}
}

// retentionRefused: a refusal changes nothing.
func retentionRefused(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock, s := year(t, fresh)
	o, dir := e.Owner(t, clock.Now), t.TempDir()
	state := func() string {
		return text(e.Query(t, "SELECT (SELECT count(*) FROM months), (SELECT count(*) FROM reports), (SELECT count(*) FROM entries), (SELECT count(*) FROM retired)"))
	}
	was := state()
	refused := func(name, want string, r sqlbooks.Retention) {
		t.Helper()
		if _, err := o.Retain(t.Context(), r); !errors.Is(err, ledger.ErrRetention) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want it refused for %q", name, err, want)
		}
	}
	refused("a month too young", "at most those before 2027-02", retention(dir, date(2027, 3)))
	refused("a month not over", "at most those before 2027-02", retention(dir, date(2027, 5)))
	refused("within a month", "is not the beginning of a month", retention(dir, date(2026, 7).Add(time.Hour)))
	refused("nowhere", "the archive's directory", retention(filepath.Join(dir, "none"), date(2026, 7)))
	nobody := retention(dir, date(2026, 7))
	nobody.Actor = ""
	refused("nobody", "done by someone", nobody)
	// Tenants that are billed need their entries until their statements are made.
	e.Tamper(t, "INSERT INTO subscriptions (tenant, from_ms, plan) VALUES ('acme', 0, 'paid'), ('zeta', 0, 'paid')")
	refused("before statements", "of tenants acme, zeta", retention(dir, date(2026, 7)))
	stated(t, e, "acme", date(2026, 7), 1000)
	stated(t, e, "zeta", date(2026, 6), 1000)
	refused("before a statement", "2026-06, of tenants zeta", retention(dir, date(2026, 7)))
	stated(t, e, "zeta", date(2026, 7), 3)
	if got := state(); got != was {
		t.Errorf("what was refused changed the ledger: from %s to %s", was, got)
	}
	// Late usage that is queued is looked at as well, before anything is retired.
	retired := func() string {
		return text(e.Query(t, "SELECT (SELECT count(*) FROM months), (SELECT count(*) FROM retired)"))
	}
	open := retired()
	stated(t, e, "zeta", date(2026, 8), 1000)
	e.Tamper(t, "INSERT INTO subscriptions (tenant, from_ms, plan) VALUES ('late', 0, 'paid')")
	late := agent{id: "late"}
	if err := wantStatus(t.Context(), s, late.report(clock.Now(), row(date(2026, 5), "late", 1)), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	queued := retention(dir, date(2026, 7))
	queued.Fold = func(ctx context.Context) error { _, err := drain(ctx, s, clock.Now()); return err }
	refused("before a statement of queued usage", "2026-05, of tenants late", queued)
	unbilled := retention(dir, date(2026, 7))
	unbilled.Unbilled = true
	// Where nobody folds, it waits, and gives up.
	a := agent{id: "waits"}
	if err := wantStatus(t.Context(), s, a.report(clock.Now(), row(clock.Now(), "acme", 1)), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	refused("before a fold", "1 reports and 0 corrections wait to be folded", unbilled)
	if got := retired(); got != open {
		t.Errorf("what was refused retired months: from %s to %s", open, got)
	}
	unbilled.Fold = func(ctx context.Context) error { _, err := drain(ctx, s, clock.Now()); return err }
	// A file that is not this ledger's is never written over.
	if err := os.WriteFile(filepath.Join(dir, "reports-2026-02.jsonl.gz"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Retain(t.Context(), unbilled); err == nil || !strings.Contains(err.Error(), "is not this ledger's") {
		t.Errorf("over another's file: got %v, want it refused", err)
	}
	other := t.TempDir()
	unbilled.Dir = other
	if done, err := o.Retain(t.Context(), unbilled); err != nil || len(done) != 2*5 {
		t.Errorf("got %v, %v, want five months archived", done, err)
	}
	verify(t, s)
	checkArchives(t, o, other)
}

// stated closes a statement of a tenant through a time, as of a block.
func stated(t testing.TB, e Engine, tenant string, to time.Time, height int) {
	t.Helper()
	e.Tamper(t, fmt.Sprintf(`INSERT INTO statements (tenant, number, period, from_s, to_s, height, block_hash, digest, document, complete_ms, forced, actor, at_ms)
		VALUES ('%s', (SELECT count(*) + 1 FROM statements), '%s', 0, %d, %d, '', '', '', 0, '', 'me', 0)`, tenant, to.Format(time.DateOnly), to.Unix(), height))
}

// retainedMembers: usage of tenants whose parents pay is on their payers' statements, however far above. These
// tenants have no statements of their own, and archiving waits for none.
func retainedMembers(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock, s := year(t, fresh)
	o, dir := e.Owner(t, clock.Now), t.TempDir()
	e.Tamper(t, `INSERT INTO tenants (id, plan, parent, overrides, suspended, change)
		VALUES ('org', 'paid', '', '', 0, 1), ('zeta', 'paid', 'org', '', 0, 2), ('acme', 'paid', 'zeta', '', 0, 3), ('new', 'paid', '', '', 0, 4)`)
	e.Tamper(t, "INSERT INTO payers (tenant, number, from_s, payer) VALUES ('zeta', 1, 0, 'org'), ('acme', 1, 0, 'zeta')")
	e.Tamper(t, "INSERT INTO subscriptions (tenant, from_ms, plan) VALUES ('org', 0, 'paid'), ('zeta', 0, 'paid'), ('acme', 0, 'paid')")
	refused := func(name, want string) {
		t.Helper()
		if _, err := o.Retain(t.Context(), retention(dir, date(2026, 7))); !errors.Is(err, ledger.ErrRetention) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want it refused for %q", name, err, want)
		}
	}
	newest := func() (height int) {
		t.Helper()
		if _, err := fmt.Sscan(text(e.Query(t, "SELECT max(height) FROM blocks")), &height); err != nil {
			t.Fatal(err)
		}
		return height
	}
	refused("before statements", "2026-03, of tenants org:")
	stated(t, e, "org", date(2026, 6), newest())
	refused("before a statement", "2026-06, of tenants org:")
	// The statement ends in the month that stays. Usage of that month that came after it would have it rated
	// again.
	stated(t, e, "org", date(2026, 7).AddDate(0, 0, 14), newest())
	late := agent{id: "late"}
	if err := wantStatus(t.Context(), s, late.report(clock.Now(), row(date(2026, 7), "acme", 1)), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	refused("before late usage is on a statement", "2026-07, of tenants org:")
	stated(t, e, "org", date(2026, 8), newest())
	// From June on another pays for the one between, and so for all below it.
	e.Tamper(t, fmt.Sprintf("INSERT INTO payers (tenant, number, from_s, payer) VALUES ('zeta', 2, %d, 'new')", date(2026, 6).Unix()))
	refused("before the other payer's statement", "2026-06, of tenants new:")
	stated(t, e, "new", date(2026, 8), newest())
	done, err := o.Retain(t.Context(), retention(dir, date(2026, 7)))
	if err != nil || len(done) != 2*5 {
		t.Errorf("with the payer's statements: got %v, %v, want five months archived", done, err)
	}
	verify(t, s)
}

// retiredAtOnce: what a server judged by months that are retired meanwhile is judged again,
// so that nothing is stored that there is no room for.
func retiredAtOnce(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock, _ := year(t, fresh)
	dir := t.TempDir()
	o := e.Owner(t, clock.Now)
	done := false
	s := e.Open(t, ledger.Options{Now: clock.Now, Accept: func(string, ledger.Row) error {
		if !done { // while the first row is judged
			done = true
			r := retention(dir, date(2026, 7))
			if _, err := o.Retain(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
		return nil
	}})
	a := agent{id: "meanwhile"}
	r := a.report(clock.Now(), row(date(2026, 5), "acme", 5), row(clock.Now(), "meanwhile", 1))
	if err := wantStatus(t.Context(), s, r, ledger.Settled); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	if got := text(e.Query(t, "SELECT count(*) FROM quarantine WHERE agent = 'meanwhile'")); got != "1\n" {
		t.Errorf("in quarantine: got %s rows, want the one of May", got)
	}
	verify(t, s)
}

// retainedDamaged: facts that do not fit their digest or key, or came after the file was written, stay in the
// ledger. Once they are put right, retention goes on.
func retainedDamaged(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock, s := year(t, fresh)
	o, dir := e.Owner(t, clock.Now), t.TempDir()
	first := date(2026, 3) // the first that holds anything
	held := func() string {
		return text(e.Query(t, "SELECT (SELECT count(*) FROM reports), (SELECT count(*) FROM entries), (SELECT count(*) FROM archived_reports)"))
	}
	for _, c := range []struct{ name, table, statement, at string }{
		{"a report that does not fit its digest", "reports", "UPDATE reports SET payload = (SELECT payload FROM reports WHERE agent = 'a' AND seq = 1) WHERE agent = 'b' AND seq = 1", ""},
		{"an entry whose key has other names", "keys", "UPDATE keys SET tenant = 'acne' WHERE tenant = 'acme'", ""},
		{"an entry without names", "keys", "DELETE FROM keys WHERE tenant = 'acme'", ""},
		{"an entry more than the file has", "entries", `INSERT INTO entries (month, height, n, slot, key, admitted, overage, denied, correction)
			SELECT month, height, 1000, slot, key, admitted, overage, denied, correction FROM entries WHERE height = 1 AND n = 0`, "entries renamed"},
	} {
		e.Tamper(t, "CREATE TABLE saved AS SELECT * FROM "+c.table)
		was := ""
		damage := func() { e.Tamper(t, c.statement); was = held() }
		r := retention(dir, date(2026, 7))
		r.Step = func(month time.Time, what string) error {
			if what == c.at && month.Equal(first) {
				damage()
			}
			return nil
		}
		if c.at == "" {
			damage()
		}
		if _, err := o.Retain(t.Context(), r); err == nil || !strings.Contains(err.Error(), "verify the ledger") {
			t.Errorf("%s: got %v, want it refused", c.name, err)
		}
		if got := held(); got != was || was == "" {
			t.Errorf("%s: the ledger had %s, and has %s", c.name, was, got)
		}
		e.Tamper(t, "DELETE FROM "+c.table)
		e.Tamper(t, "INSERT INTO "+c.table+" "+e.Overriding+" SELECT * FROM saved")
		e.Tamper(t, "DROP TABLE saved")
	}
	if done, err := o.Retain(t.Context(), retention(dir, date(2026, 7))); err != nil || len(done) != 2*4 { // February held nothing, and went before
		t.Errorf("put right: got %v, %v, want four months archived", done, err)
	}
	verify(t, s)
	checkArchives(t, o, dir)
}
