package alerts

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/sqlstore"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/server/servertest"
	"github.com/f4ee788f/quota/internal/server/statements"
	"github.com/f4ee788f/quota/internal/testenv"
	"github.com/f4ee788f/quota/migrations"
)

// askedOf counts what the ledger is asked.
type askedOf struct {
	alert.Usage
	hourly, added, changed int
}

func (c *askedOf) Hourly(ctx context.Context, q ledger.HourlyQuery) (ledger.HourlySums, error) {
	c.hourly++
	return c.Usage.Hourly(ctx, q)
}

func (c *askedOf) Added(ctx context.Context, since ledger.KeptBlockInfo, height int64, n int) ([]ledger.AddedSum, bool, error) {
	c.added++
	return c.Usage.Added(ctx, since, height, n)
}

func (c *askedOf) Changed(ctx context.Context, since, height int64, after string, n int) ([]ledger.ChangedTenant, error) {
	c.changed++
	return c.Usage.Changed(ctx, since, height, after, n)
}

// Of many tenants a first look asks the ledger in one question for each window or period; those after it
// ask for what came since, once, and no more.
func TestALookReadsNewBlocksAlone(t *testing.T) {
	servertest.OnEngines(t, testALookReadsNewBlocksAlone)
}

func testALookReadsNewBlocksAlone(t *testing.T, on servertest.Engine) {
	text := "alerts: [{name: bill, spending: 1.00 USD, at: 100%}, {name: used, quota: monthly, at: 100%}]\n" +
		"plans: {free: {}, p: {limits: [{name: monthly, algorithm: fixed_window, rate: 1000/month, meter: m}], price: {currency: USD, meters: {m: {unit: 0.01}}}}}\ntenants: ["
	var rows []ledger.Row
	for i := range 50 {
		id := fmt.Sprintf("t%02d", i)
		text += "{id: " + id + ", plan: p}, "
		rows = append(rows, ledger.Row{Tenant: id, Limit: "monthly", Meter: "m", Version: 2, Admitted: 40})
	}
	w := newWatched(t, on, strings.TrimSuffix(text, ", ")+"]\n")
	c := &askedOf{Usage: w.e.Usage}
	w.e.Usage = c
	for i := range 4 {
		w.At = w.At.Add(10 * time.Minute)
		for j := range rows {
			rows[j].Slot = w.At.Unix()
		}
		w.rows("gw", rows...)
		*c = askedOf{Usage: c.Usage}
		raised := strings.Count(w.round(), "bill")
		if want := map[bool]int{true: 50}[i == 2]; raised != want { // 120 units
			t.Errorf("look %d: %d told, want %d", i, raised, want)
		}
		if i == 0 && c.hourly > 2 || i > 0 && (c.hourly != 0 || c.added != 1) || c.changed != 0 {
			t.Errorf("look %d: %+v", i, *c)
		}
	}
	// What is kept is what is there: a look that begins anew finds the same.
	w.e = &alert.Evaluator{Store: w.e.Store, Policy: w.e.Policy, Usage: c, Spending: w.e.Spending, InForce: w.e.InForce, Now: w.e.Now, Looked: w.e.Looked, Raised: w.e.Raised, Turned: w.e.Turned, Failed: w.e.Failed}
	*c = askedOf{Usage: c.Usage}
	w.rows("gw", rows...)
	w.wants("by another server", "")
	if c.hourly == 0 || c.changed != 1 {
		t.Errorf("by another server: %+v", *c)
	}
}

// BenchmarkLook is what a look takes at 10,000 tenants with a spending alert that all have usage in
// the new block, on the 21st day of a month with usage in every hour: the first, which reads the
// month, and those after it.
func BenchmarkLook(b *testing.B) {
	const tenants, days = 10_000, 21
	pg := testenv.Postgres(b)
	if err := migrations.Postgres(b.Context(), pg.OwnerURL()); err != nil {
		b.Fatal(err)
	}
	from := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	at := from.AddDate(0, 0, days)
	l, err := pgledger.Open(b.Context(), pg.AppURL(), ledger.Options{Now: func() time.Time { return at }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	db := stdlib.OpenDBFromPool(l.Pool())
	b.Cleanup(func() { db.Close() })
	store := sqlstore.New(db, sqlstore.Postgres, func() time.Time { return from.AddDate(0, -1, 0) })
	text := "alerts: [{name: bill, spending: 100000.00 USD}]\n" +
		"plans: {p: {limits: [{name: requests, rate: 1000/hour, meter: m}], price: {monthly: 9.00 USD, meters: {m: {tiers: [{up_to: 1000, unit: 0.01}, {unit: 0.005}]}}}}}\n"
	doc, err := policy.Parse("", []byte(text))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := store.Apply(b.Context(), "ann", doc, 0, false); err != nil {
		b.Fatal(err)
	}
	rules, err := limit.CompilePolicy(doc.Policy(1))
	if err != nil {
		b.Fatal(err)
	}
	owner, err := pgx.Connect(b.Context(), pg.OwnerURL())
	if err != nil {
		b.Fatal(err)
	}
	defer owner.Close(context.WithoutCancel(b.Context()))
	run := func(format string, args ...any) {
		b.Helper()
		if _, err := owner.Exec(b.Context(), fmt.Sprintf(format, args...)); err != nil {
			b.Fatal(err)
		}
	}
	run(`SET synchronous_commit = off; SELECT make_months('2026-10-01', '2026-10-01');
		INSERT INTO tenants (id, plan, parent, overrides, suspended, change, billing) SELECT 'tenant-' || i, 'p', '', '', 0, i, '' FROM generate_series(1, %d) AS i;
		INSERT INTO subscriptions (tenant, from_ms, plan) SELECT 'tenant-' || i, %d, 'p' FROM generate_series(1, %[1]d) AS i;
		UPDATE policy_heads SET tenants = %[1]d;
		INSERT INTO blocks VALUES (1, '', '\x01', 1, 1, '', 0);
		INSERT INTO keys SELECT md5(i::text)::uuid, 'tenant-' || i, 'requests', 'm', 1, '' FROM generate_series(1, %[1]d) AS i;
		ALTER TABLE rollups DROP CONSTRAINT rollups_pkey; DROP INDEX rollups_hour; -- made again: five million rows are in sooner so
		INSERT INTO rollups SELECT k.key, h, 10, 0, 0 FROM generate_series(%[3]d, %[4]d, 3600) AS h, (SELECT key FROM keys ORDER BY key) AS k;
		ALTER TABLE rollups ADD PRIMARY KEY (key, hour); CREATE INDEX rollups_hour ON rollups (hour)`,
		tenants, from.AddDate(0, -1, 0).UnixMilli(), from.Unix(), at.Unix()-3600)
	run("VACUUM ANALYZE")
	s := statements.New(l.Books(), store, func() time.Time { return at })
	e := &alert.Evaluator{
		Store: store, Policy: store, Usage: l.Books(), Spending: s.Spending, Now: func() time.Time { return at }, Looked: func(time.Duration) {},
		InForce: func() (*policy.Document, *limit.Rules) { return doc, rules },
		Raised:  func(e *alert.Event) { b.Fatal(e) }, Turned: func(string, terms.Capped) {}, Failed: func(tenant string, err error) { b.Fatal(tenant, err) },
	}
	begun := time.Now()
	if err := e.Round(b.Context(), leads); err != nil {
		b.Fatal(err)
	}
	first := time.Since(begun)
	for height := int64(2); b.Loop(); height++ {
		b.StopTimer()
		run(`INSERT INTO blocks VALUES (%d, '\x%02[1]x', '\x%02[1]x', 1, 1, '', 0);
			INSERT INTO entries (month, height, n, slot, key, admitted, overage, denied) SELECT '2026-10-01', %[1]d, row_number() OVER (), %[2]d, key, 1, 0, 0 FROM keys;
			INSERT INTO rollups SELECT key, %[2]d, 1, 0, 0 FROM keys ON CONFLICT (key, hour) DO UPDATE SET admitted = rollups.admitted + 1`, height, at.Unix())
		b.StartTimer()
		if err := e.Round(b.Context(), leads); err != nil {
			b.Fatal(err)
		}
		if m, err := store.Marks(b.Context()); err != nil || m.Height != height || m.Sweeping {
			b.Fatal(m, err)
		}
	}
	b.ReportMetric(first.Seconds(), "first-s") // the loop's begin forgets what was reported before it
}
