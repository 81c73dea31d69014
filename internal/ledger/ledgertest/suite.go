package ledgertest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
)

// Engine is one new, empty ledger.
type Engine struct {
	// Open returns a server on it. Servers opened on one ledger share it; each is
	// closed with the test.
	Open func(t testing.TB, o ledger.Options) ledger.Store
	// Query reads the ledger's tables, by statements that all engines understand,
	// and returns rows of text.
	Query func(t testing.TB, query string) [][]string
	// Unguard takes out of the tables what makes settlement happen once: frontiers
	// stay where they are, and reports may be stored twice. Before Open.
	Unguard func(t testing.TB)
	// Tamper runs a statement as nobody may: with the database's guards off.
	Tamper func(t testing.TB, statement string)
	// Owner is the owner of the ledger's tables, at that time.
	Owner func(t testing.TB, now func() time.Time) *sqlbooks.Owner
	// Bytes is how the engine's SQL begins bytes in hex, up to the quote; Overriding is
	// what an INSERT needs to say to give numbers that the engine gives by itself.
	Bytes, Overriding string
}

// Run holds an engine to the contract. fresh makes a new ledger.
func Run(t *testing.T, fresh func(t testing.TB) Engine) {
	t.Run("Scenarios", func(t *testing.T) { scenarios(t, fresh) })
	t.Run("SettledOnce", func(t *testing.T) { settledOnce(t, fresh) })
	t.Run("Neighbours", func(t *testing.T) { neighbours(t, fresh) })
	t.Run("Unchecked", func(t *testing.T) { unchecked(t, fresh) })
	t.Run("Unsealed", func(t *testing.T) { unsealed(t, fresh) })
	t.Run("Groups", func(t *testing.T) { groups(t, fresh) })
	t.Run("Overlapping", func(t *testing.T) { overlapping(t, fresh) })
	t.Run("EntriesGrowWithKeys", func(t *testing.T) { entriesGrowWithKeys(t, fresh) })
	t.Run("Chain", func(t *testing.T) { chain(t, fresh) })
	t.Run("Folders", func(t *testing.T) { folders(t, fresh) })
	t.Run("Interrupted", func(t *testing.T) { interrupted(t, fresh) })
	t.Run("Endless", func(t *testing.T) { endless(t, fresh) })
	t.Run("Wide", func(t *testing.T) { wide(t, fresh) })
	t.Run("Shared", func(t *testing.T) { shared(t, fresh) })
	t.Run("Usage", func(t *testing.T) { usage(t, fresh) })
	t.Run("Pages", func(t *testing.T) { pages(t, fresh) })
	t.Run("Standing", func(t *testing.T) { standing(t, fresh) })
	t.Run("Agents", func(t *testing.T) { agents(t, fresh) })
	t.Run("Histories", func(t *testing.T) { histories(t, fresh) })
	t.Run("Verified", func(t *testing.T) { verified(t, fresh) })
	t.Run("VerifiedCorrections", func(t *testing.T) { verifiedCorrections(t, fresh) })
	t.Run("VerifiedLive", func(t *testing.T) { verifiedLive(t, fresh) })
	t.Run("Rebuilt", func(t *testing.T) { rebuilt(t, fresh) })
	t.Run("Corrections", func(t *testing.T) { corrections(t, fresh) })
	t.Run("CorrectionsFirst", func(t *testing.T) { early(t, fresh) })
	t.Run("RefusedCorrections", func(t *testing.T) { refusedCorrections(t, fresh) })
	t.Run("OwnKeys", func(t *testing.T) { ownKeys(t, fresh) })
	t.Run("Quarantined", func(t *testing.T) { quarantined(t, fresh) })
	t.Run("QuarantinePages", func(t *testing.T) { quarantinePages(t, fresh) })
	t.Run("Withheld", func(t *testing.T) { withheld(t, fresh) })
	t.Run("Accounts", func(t *testing.T) { accounts(t, fresh) })
	t.Run("HostileAccounts", func(t *testing.T) { hostileAccounts(t, fresh) })
	t.Run("Drawn", func(t *testing.T) { drawn(t, fresh) })
	t.Run("AuditedUsage", func(t *testing.T) { auditedUsage(t, fresh) })
	t.Run("Sealed", func(t *testing.T) { sealed(t, fresh) })
	t.Run("Hourly", func(t *testing.T) { hourly(t, fresh) })
	t.Run("Added", func(t *testing.T) { added(t, fresh) })
	t.Run("Breakdown", func(t *testing.T) { breakdown(t, fresh) })
	t.Run("MostBeyondTheGreatest", func(t *testing.T) { mostBeyond(t, fresh) })
	t.Run("DeclaredLost", func(t *testing.T) { declaredLost(t, fresh) })
	t.Run("LostKeys", func(t *testing.T) { lostKeys(t, fresh) })
	t.Run("Losses", func(t *testing.T) { losses(t, fresh) })
	t.Run("LossesOfRuns", func(t *testing.T) { lossesOfRuns(t, fresh) })
	t.Run("Traces", func(t *testing.T) { traces(t, fresh) })
	t.Run("Holds", func(t *testing.T) { holds(t, fresh) })
	t.Run("LateHolds", func(t *testing.T) { lateHolds(t, fresh) })
	t.Run("Strangers", func(t *testing.T) { strangers(t, fresh) })
	t.Run("Retained", func(t *testing.T) { retained(t, fresh) })
	t.Run("RetainedKilled", func(t *testing.T) { retainedKilled(t, fresh) })
	t.Run("RetainedDamaged", func(t *testing.T) { retainedDamaged(t, fresh) })
	t.Run("ArchivedUnderABreakdown", func(t *testing.T) { archivedUnderABreakdown(t, fresh) })
	t.Run("RetentionRefused", func(t *testing.T) { retentionRefused(t, fresh) })
	t.Run("RetainedMembers", func(t *testing.T) { retainedMembers(t, fresh) })
	t.Run("RetiredAtOnce", func(t *testing.T) { retiredAtOnce(t, fresh) })
	t.Run("Closed", func(t *testing.T) { closed(t, fresh) })
}

// Clock is the time that a test's ledger believes. Safe for concurrent use.
type Clock struct{ at atomic.Int64 }

// Start is where a suite's clock begins: ten minutes before a month's end.
var Start = time.Date(2026, 3, 31, 23, 50, 0, 0, time.UTC)

// NewClock returns a clock at Start.
func NewClock() *Clock {
	c := new(Clock)
	c.at.Store(Start.UnixNano())
	return c
}

// Now returns the time.
func (c *Clock) Now() time.Time { return time.Unix(0, c.at.Load()).UTC() }

// Advance moves it.
func (c *Clock) Advance(d time.Duration) { c.at.Add(int64(d)) }

// latest is the latest time through which usage can be complete at a time.
func latest(at time.Time) time.Time { return at.Add(-ledger.NotedWithin) }

// agent makes reports the way that a good agent does.
type agent struct {
	id    string
	epoch int64
	seq   int64
	total int64
}

func (a *agent) report(through time.Time, rows ...ledger.Row) ledger.Report {
	a.seq++
	r := ledger.NewReport(a.id, a.epoch, a.seq, a.total, rows, through.UnixMilli(), false)
	a.total = r.After
	return r
}

func row(at time.Time, tenant string, admitted int64) ledger.Row {
	return ledger.Row{
		Slot: at.Truncate(5 * time.Minute).Unix(), Tenant: tenant, Limit: "requests", Meter: "requests",
		Version: 1, Plan: "paid", Attributes: "endpoint=/a", Admitted: admitted,
	}
}

// settleOne sends one report alone.
func settleOne(ctx context.Context, s ledger.Store, r ledger.Report) (ledger.Receipt, error) {
	receipts, err := s.Settle(ctx, []ledger.Report{r})
	if err != nil {
		return ledger.Receipt{}, err
	}
	if len(receipts) != 1 {
		return ledger.Receipt{}, fmt.Errorf("settle one report: got %d receipts", len(receipts))
	}
	return receipts[0], nil
}

// wantStatus sends one report and says what came instead of the wanted status.
func wantStatus(ctx context.Context, s ledger.Store, r ledger.Report, want ledger.Status) error {
	got, err := settleOne(ctx, s, r)
	if err != nil {
		return err
	}
	if got.Status != want {
		return fmt.Errorf("settle %s/%d/%d: got %s (%s), want %s", r.Agent, r.Epoch, r.Seq, statusName(got.Status), got.Message, statusName(want))
	}
	return nil
}

// wantTotal says what a tenant's usage is instead of the wanted units.
func wantTotal(ctx context.Context, s ledger.Store, tenant string, want int64) error {
	u, err := s.Usage(ctx, ledger.Query{Tenant: tenant})
	if err != nil {
		return err
	}
	var got int64
	for _, r := range u.Rows {
		got += r.Admitted
	}
	if got != want {
		return fmt.Errorf("usage of %s: got %d units, want %d", tenant, got, want)
	}
	return nil
}

// drain folds until nothing is left and returns how many blocks that made.
func drain(ctx context.Context, s ledger.Store, now time.Time) (blocks int, err error) {
	for {
		n, left, err := s.Fold(ctx, now)
		if err != nil {
			return blocks, err
		}
		if n > 0 {
			blocks++
		}
		if !left {
			return blocks, nil
		}
	}
}

func statusName(s ledger.Status) string {
	names := []string{"nothing", "settled", "already settled", "ahead", "fenced", "unavailable", "rejected"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("status %d", s)
}

func text(rows [][]string) string {
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(strings.Join(r, " ") + "\n")
	}
	return b.String()
}
