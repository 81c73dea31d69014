package ledgertest

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// booksOf are the operators' side of an engine.
func booksOf(s ledger.Store) ledger.Books { return s.(interface{ Books() ledger.Books }).Books() }

// refuse is what the suite's ledgers accept: everybody but unknown tenants.
func refuse(_ string, r ledger.Row) error {
	if strings.HasPrefix(r.Tenant, "unknown") {
		return fmt.Errorf("tenant %s is not known", r.Tenant)
	}
	return nil
}

// filled is a ledger with something in every table. It has open, closed and fenced epochs, heartbeats, rows and
// whole reports in quarantine, three blocks, and a queue.
func filled(t testing.TB, fresh func(testing.TB) Engine) (Engine, *Clock, ledger.Store) {
	t.Helper()
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now, Accept: refuse})
	a, b, c := agent{id: "a"}, agent{id: "b", epoch: 4}, agent{id: "c"}
	settle := func(want ledger.Status, reports ...ledger.Report) {
		t.Helper()
		for _, r := range reports {
			if err := wantStatus(t.Context(), s, r, want); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range int64(3) {
		at := clock.Now()
		settle(ledger.Settled, a.report(at, row(at, "acme", 10+i), row(at, "zeta", 1)), a.report(at),
			b.report(at, row(at, "acme", 100), row(at, "unknown-1", 5), row(at, "unknown-2", 6)))
		if i == 1 {
			r := c.report(at, row(at, "acme", 7))
			r.Closed = true
			r.Digest = r.Sum()
			settle(ledger.Settled, r)
		}
		if n, _, err := s.Fold(t.Context(), at); err != nil || n == 0 {
			t.Fatalf("fold: %d, %v", n, err)
		}
		clock.Advance(20 * time.Minute)
	}
	// c ended as it said, and of a more is booked than is settled, for it goes on.
	said := func(agent string, s ledger.Said) ledger.Account {
		return ledger.Account{ID: ledger.AccountID{Epoch: ledger.Epoch{Agent: agent}, Limit: "requests"}, Said: &s}
	}
	if err := booksOf(s).Record(t.Context(), "one", 1, []ledger.Account{
		said("a", ledger.Said{Number: 3, Granted: 90, Spent: 60, Returned: 10, Held: 20, Booked: 60}),
		said("c", ledger.Said{Number: 1, Granted: 7, Spent: 7, Booked: 7}),
	}); err != nil {
		t.Fatal(err)
	}
	settle(ledger.Settled, a.report(clock.Now(), row(clock.Now(), "acme", 1)), b.report(clock.Now(), row(clock.Now(), "late", 2)))
	bad := b.report(clock.Now(), row(clock.Now(), "acme", 1))
	bad.Digest[0]++
	settle(ledger.Rejected, bad)
	return e, clock, s
}

// verify checks a ledger that has to be sound.
func verify(t testing.TB, s ledger.Store) *ledger.Verified {
	t.Helper()
	v, err := booksOf(s).Verify(t.Context(), nil)
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	for _, f := range v.Faults {
		t.Errorf("verify: %s", f)
	}
	return v
}

// tamper is a statement, and what the fault that it makes has to say.
type tamper struct{ name, statement, want string }

// tampering are changes that no server makes, and what each must be found as.
var tampering = []tamper{
	{"a report's payload", "UPDATE reports SET payload = (SELECT payload FROM reports WHERE agent = 'a' AND seq = 3) WHERE agent = 'a' AND seq = 1", "reports a/0/1: ledger: bad report: digest"},
	{"a report's totals", "UPDATE reports SET total_after = total_after + 1 WHERE agent = 'a' AND seq = 3", "reports a/0/3: ledger: bad report"},
	{"a report less", "DELETE FROM reports WHERE agent = 'a' AND seq = 2", "reports a/0/3: the one before it is 1: the epoch has a gap"},
	{"a folded report less", "DELETE FROM reports WHERE agent = 'b' AND seq = 1", "blocks 1: it is said to fold 1 reports of b/4, and 0 are there"},
	{"the last report less", "DELETE FROM reports WHERE agent = 'a' AND seq = 7", "frontier a/0: it is at report 7, and the last one is 6"},
	{"a report's rows held back", "UPDATE reports SET held = x'0001' WHERE agent = 'a' AND seq = 1", "quarantine a/0/1: the report says 2 rows, and there are none"},
	{"a report's row count", "UPDATE reports SET row_count = 9 WHERE agent = 'a' AND seq = 1", "reports a/0/1: it is said to have 9 rows, and has 2"},
	{"a frontier put back", "UPDATE frontier SET seq = seq - 1 WHERE agent = 'a'", "frontier a/0: it is at report 6, and the last one is 7"},
	{"a frontier's total", "UPDATE frontier SET total = total + 1 WHERE agent = 'a'", "frontier a/0: it is at "},
	{"a frontier's completeness", "UPDATE frontier SET through_ms = through_ms + 1 WHERE agent = 'a'", "frontier a/0: it is complete through"},
	{"a frontier closed", "UPDATE frontier SET state = 'closed' WHERE agent = 'a'", "frontier a/0: it is closed, and its last report did not close it"},
	{"a frontier less", "DELETE FROM frontier WHERE agent = 'c'", "frontier c/0: there is none, and there are reports"},
	{"a queued report less", "DELETE FROM queue WHERE agent = 'a'", "queue a/0: of 4 reports to fold, 3 are in blocks and 0 are queued"},
	{"a folded report queued again", "UPDATE queue SET seq = 1 WHERE agent = 'a'", "queue a/0: report 1 is queued, and 5 is in a block"},
	{"a heartbeat queued", "UPDATE queue SET seq = 2 WHERE agent = 'a'", "queue a/0/2: there is no such report to fold"},
	{"a block less", "DELETE FROM blocks WHERE height = 2", "blocks 3: the one below it is 1"},
	{"a block's hash", "UPDATE blocks SET hash = previous WHERE height = 2", "blocks 2: its hash is not that of its content"},
	{"a block's sources", "UPDATE blocks SET sources = (SELECT sources FROM blocks WHERE height = 1) WHERE height = 3", "blocks 3: reports 1 to 3 of a/0 are in an earlier block as well"},
	{"a block's count of reports", "UPDATE blocks SET reports = reports + 1 WHERE height = 3", "blocks 3: it is said to fold 3 reports, and 2 are there"},
	{"a block's count of entries", "UPDATE blocks SET entries = entries + 1 WHERE height = 3", "blocks 3: it is said to have 3 entries, and has 2"},
	{"an entry's units", "UPDATE entries SET admitted = admitted - 1 WHERE height = 2 AND n = 0", "entries 2/0: it is "},
	{"an entry moved to another tenant", "UPDATE entries SET key = (SELECT key FROM keys WHERE tenant = 'zeta') WHERE height = 2 AND n = 0", "no report of the block holds it"},
	{"an entry less", "DELETE FROM entries WHERE height = 2 AND n = 1", "entries 2: the block's reports hold what no entry does"},
	{"a key's tenant", "UPDATE keys SET tenant = 'acne' WHERE tenant = 'acme'", "its names have another hash"},
	{"a key less", "DELETE FROM keys WHERE tenant = 'zeta'", ": there is none, and entry 1/1 names it"},
	{"a roll-up's units", "UPDATE rollups SET admitted = admitted + 1 WHERE hour = (SELECT min(hour) FROM rollups)", "rollups 2026-03-31T23:00:00Z "},
	{"a roll-up less", "DELETE FROM rollups WHERE hour = (SELECT min(hour) FROM rollups)", "it is 0, 0, 0, and its entries add up to "},
	{"a roll-up more", "INSERT INTO rollups (key, hour, admitted, overage, denied) SELECT key, 3600, 0, 0, 0 FROM keys WHERE tenant = 'acme'", "rollups 1970-01-01T01:00:00Z "},
	{"a tenant's touch less", "DELETE FROM touched WHERE tenant = 'acme' AND agent = 'a'", `touched a/0: it settled usage of tenant "acme"`},
	{"what is settled of a limit", "UPDATE settled SET units = units + 1 WHERE agent = 'a'", "settled a/0/requests: it says "},
	{"what is settled of a limit, less", "DELETE FROM settled WHERE agent = 'b'", "settled b/4/requests: the reports in blocks hold "},
	{"units that a closed epoch booked", "UPDATE leases SET said_booked = said_booked + 2 WHERE agent = 'c'", "leases c/0/requests: 2 units settled: missing"},
	{"what an agent was granted", "UPDATE leases SET said_granted = said_granted - 3 WHERE agent = 'a'", "leases a/0/requests: 3 units granted: does not add up"},
	{"a quarantined row's units", "UPDATE quarantine SET body = (SELECT body FROM quarantine WHERE seq = 1 AND row_number = 1) WHERE seq = 1 AND row_number >= 0", "quarantine b/4/1: its rows are not the report's"},
	{"a quarantined row less", "DELETE FROM quarantine WHERE seq = 1 AND row_number = 1", "quarantine b/4/1: it holds 1 rows, and the report says 2"},
	{"a quarantined report", "UPDATE quarantine SET body = x'07' WHERE row_number = -1", "quarantine b/4/5: a whole report"},
}

// verified: what servers write is sound, and whatever is changed by hand is found.
func verified(t *testing.T, fresh func(testing.TB) Engine) {
	e, _, s := filled(t, fresh)
	v := verify(t, s)
	if c := v.Counts; v.Height != 3 || c.Blocks != 3 || c.Epochs != 3 || c.Reports != 12 || c.Quarantined != 7 || c.Entries == 0 || c.Rollups == 0 {
		t.Errorf("verified: got %+v", v)
	}
	if e.Tamper == nil {
		t.Fatal("the engine cannot be tampered with")
	}
	tampered(t, e, s, tampering)
}

// tampered changes a sound ledger in each way, and puts it back.
func tampered(t *testing.T, e Engine, s ledger.Store, changes []tamper) {
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			statement := strings.ReplaceAll(c.statement, "x'", e.Bytes)
			table := regexp.MustCompile(`^(?:UPDATE|DELETE FROM|INSERT INTO) (\w+)`).FindStringSubmatch(statement)[1]
			e.Tamper(t, "CREATE TABLE saved AS SELECT * FROM "+table)
			defer func() {
				e.Tamper(t, "DELETE FROM "+table)
				e.Tamper(t, "INSERT INTO "+table+" "+e.Overriding+" SELECT * FROM saved")
				e.Tamper(t, "DROP TABLE saved")
			}()
			e.Tamper(t, statement)
			v, err := booksOf(s).Verify(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range v.Faults {
				if strings.Contains(f.String(), c.want) {
					return
				}
			}
			t.Errorf("got the faults %v, want one that says %q", v.Faults, c.want)
		})
	}
	verify(t, s) // all of it was put back
}

// verifiedCorrections: so it is with corrections, and with what was released.
func verifiedCorrections(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	late := false
	s := e.Open(t, ledger.Options{Now: clock.Now, Accept: func(_ string, r ledger.Row) error {
		if late {
			return nil
		}
		return refuse("", r)
	}})
	a, books := agent{id: "a"}, booksOf(s)
	if err := wantStatus(t.Context(), s, a.report(clock.Now(), row(clock.Now(), "acme", 10), row(clock.Now(), "unknown-1", 5), row(clock.Now(), "unknown-2", 6)), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	late = true
	for i := range 3 {
		if _, err := books.Correct(t.Context(), operator, correction(t, ledger.KindAdjust, fmt.Sprint(i), i == 0, "r", row(clock.Now(), "acme", int64(i+1)))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := books.Retry(t.Context(), operator, "r", []int64{1}); err != nil {
		t.Fatal(err)
	}
	if err := books.Discard(t.Context(), operator, "r", []int64{2}); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := books.Revert(t.Context(), operator, "r", 3); err != nil {
		t.Fatal(err)
	}
	verify(t, s)
	tampered(t, e, s, []tamper{
		{"a correction's sign", "UPDATE corrections SET negative = NOT negative WHERE number = 2", "corrections 2: its digest does not fit the content"},
		{"a correction's reason", "UPDATE corrections SET reason = 'another' WHERE number = 5", "corrections 5: its digest does not fit the content"},
		{"a correction's digest", "UPDATE corrections SET digest = (SELECT digest FROM corrections WHERE number = 1) WHERE number = 2", "corrections 2: its digest is not what block 1 was sealed with"},
		{"a correction less", "DELETE FROM corrections WHERE number = 1", "blocks 1: correction 1 is not there"},
		{"the last correction less", "DELETE FROM corrections WHERE number = 2", "corrections 3: the one before it is 1: there is a gap"},
		{"a correction's entry", "UPDATE entries SET admitted = 0 WHERE correction = 2", "entries 1: its corrections' entries are not what the corrections say"},
		{"a correction's entry as a report's", "UPDATE entries SET correction = 0 WHERE correction = 1", "blocks 1: its hash is not that of its content"},
		{"a queued correction less", "DELETE FROM corrections_queue", "corrections_queue 5: it is neither queued nor in a block"},
		{"a folded correction queued again", "INSERT INTO corrections_queue (number, row_count) VALUES (1, 1)", "corrections_queue 1: it is queued, and in block 1"},
		{"a block's corrections", "UPDATE blocks SET corrections = x''", "blocks 1: its hash is not that of its content"},
		{"a release of another row", "UPDATE resolutions SET quarantined = 3 WHERE quarantined = 1", "resolutions 3: it is of no row in quarantine"},
		{"a release that did not happen", "UPDATE resolutions SET correction = 4 WHERE quarantined = 2", "resolutions of correction 4: the rows that it released are not what it adds"},
		{"a resolution by an adjustment", "UPDATE resolutions SET correction = 1 WHERE quarantined = 2", "or its correction 1 releases nothing"},
	})
}

// rebuilt: roll-ups that were changed, are missing, or should not be there are made
// again from entries, and those that were right stay.
func rebuilt(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock, s := filled(t, fresh)
	before := text(e.Query(t, "SELECT key, hour, admitted, overage, denied FROM rollups ORDER BY key, hour"))
	if n, err := booksOf(s).Rebuild(t.Context(), operator, nil); err != nil || n != 0 {
		t.Fatalf("rebuild of what is right: got %d, %v, want 0", n, err)
	}
	if got := audited(t, e); got != "" {
		t.Errorf("a rebuild that changed nothing is audited: %s", got)
	}
	e.Tamper(t, "UPDATE rollups SET admitted = admitted + 5, denied = 3 WHERE hour = (SELECT min(hour) FROM rollups)")
	e.Tamper(t, "DELETE FROM rollups WHERE hour = (SELECT max(hour) FROM rollups)")
	e.Tamper(t, fmt.Sprintf("INSERT INTO rollups (key, hour, admitted, overage, denied) SELECT key, %d, 9, 0, 0 FROM keys WHERE tenant = 'acme'", clock.Now().Add(-72*time.Hour).Truncate(time.Hour).Unix()))
	var stages []ledger.Progress
	n, err := booksOf(s).Rebuild(t.Context(), operator, func(p ledger.Progress) { stages = append(stages, p) })
	if err != nil || n < 3 {
		t.Fatalf("rebuild: got %d, %v, want at least 3", n, err)
	}
	if len(stages) == 0 || stages[len(stages)-1].Done != stages[len(stages)-1].Total {
		t.Errorf("progress: got %v", stages)
	}
	if after := text(e.Query(t, "SELECT key, hour, admitted, overage, denied FROM rollups ORDER BY key, hour")); after != before {
		t.Errorf("rebuilt: got\n%swant\n%s", after, before)
	}
	months := make(map[string]bool)
	for _, hour := range []time.Time{clock.Now(), clock.Now().Add(-72 * time.Hour)} {
		months[hour.UTC().Format("2006-01")] = true
	}
	if rows := e.Query(t, "SELECT actor, action, object FROM audit_log"); len(rows) == 0 || len(rows) > len(months) {
		t.Errorf("audited %v, want a row for each of %v in which something was wrong", rows, months)
	} else if got := fmt.Sprint(rows[0][0], rows[0][1]); got != operator+"ledger.rebuild" || !months[fmt.Sprint(rows[0][2])] {
		t.Errorf("audited %v", rows)
	}
	if _, err := booksOf(s).Rebuild(t.Context(), "", nil); !errors.Is(err, ledger.ErrCorrection) {
		t.Errorf("by nobody: %v, want %v", err, ledger.ErrCorrection)
	}
	verify(t, s)
}

// verifiedLive: a verification is of one moment, while servers settle and fold.
func verifiedLive(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	other := e.Open(t, ledger.Options{Now: clock.Now})
	done := make(chan error, 1)
	go func() {
		g := agent{id: "a"}
		var err error
		for i := range 60 {
			err = errors.Join(err, wantStatus(t.Context(), s, g.report(clock.Now(), row(clock.Now(), "acme", 3)), ledger.Settled))
			if i%3 == 0 {
				_, _, e := s.Fold(t.Context(), clock.Now())
				err = errors.Join(err, e)
			}
		}
		done <- err
	}()
	for {
		v, err := booksOf(other).Verify(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if !v.Sound() {
			t.Fatalf("got the faults %v", v.Faults)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}
