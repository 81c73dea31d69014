package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/server/books"
	"github.com/f4ee788f/quota/internal/server/servertest"
	"github.com/f4ee788f/quota/internal/server/statements"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// watched is an evaluator over an embedded ledger, at a time of its own.
type watched struct {
	*servertest.Stores
	s      *statements.Service
	e      *alert.Evaluator
	store  alert.Store
	raised []string
	turned []string
	failed []string
}

// apply makes a document the next version, in force at once.
func (w *watched) apply(text string) {
	w.T.Helper()
	doc, err := policy.Parse("quota.yaml", []byte(text))
	if err != nil {
		w.T.Fatal(err)
	}
	applied, err := w.Policy.Apply(w.T.Context(), "ann", doc, 0, false)
	if err != nil {
		w.T.Fatal(err)
	}
	rules, err := limit.CompilePolicy(doc.Policy(applied.Version))
	if err != nil {
		w.T.Fatal(err)
	}
	w.e.InForce = func() (*policy.Document, *limit.Rules) { return doc, rules }
}

func newWatched(t *testing.T, on servertest.Engine, text string) *watched {
	t.Helper()
	w := &watched{Stores: servertest.NewStores(t, on)}
	w.s = statements.New(w.Books, w.Policy, w.Now)
	w.store = w.Policy
	w.e = &alert.Evaluator{
		Store: w.store, Policy: w.Policy, Usage: w.Books, Spending: w.s.Spending, Now: func() time.Time { return w.At },
		Looked: func(time.Duration) {},
		Raised: func(e *alert.Event) {
			w.raised = append(w.raised, fmt.Sprintf("%s %s %s in %s: %s of %s", e.Alert, e.Tenant, policy.Percent(e.Threshold), e.Period, e.Words(e.Used), e.Words(e.Of)))
		},
		Turned: func(tenant string, c terms.Capped) { w.turned = append(w.turned, tenant+" "+c.At) },
		Failed: func(tenant string, err error) { w.failed = append(w.failed, tenant+": "+err.Error()) },
	}
	w.apply(text)
	return w
}

// spent is what a tenant's spending comes to, read from the ledger as it is.
func (w *watched) spent(tenant string) ([]alert.Spent, error) {
	w.T.Helper()
	standings, err := w.Policy.Standings(w.T.Context(), []string{tenant})
	if err != nil {
		w.T.Fatal(err)
	}
	all := []alert.Spender{{Standing: standings[0], First: w.At.Unix()}}
	err = w.s.Spending(w.T.Context(), all, func(ctx context.Context, asks []alert.Ask) ([]alert.Answer, error) {
		answers := make([]alert.Answer, len(asks))
		for i, a := range asks {
			a.Query.Tenants = []string{a.Tenant}
			sums, err := w.Books.Hourly(ctx, a.Query)
			answers[i] = alert.Answer{Sums: sums.Sums, Err: err}
		}
		return answers, nil
	})
	return all[0].Spent, errors.Join(err, all[0].Err)
}

func leads(context.Context) (bool, error) { return true, nil }

// round runs one, and returns what it raised.
func (w *watched) round() string {
	w.T.Helper()
	w.raised = nil
	if err := w.e.Round(w.T.Context(), leads); err != nil {
		w.T.Fatal(err)
	}
	if len(w.failed) > 0 {
		w.T.Errorf("failed: %q", w.failed)
	}
	return strings.Join(w.raised, "; ")
}

func (w *watched) wants(what, want string) {
	w.T.Helper()
	if got := w.round(); got != want {
		w.T.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// rows has an agent report rows, and folds.
func (w *watched) rows(agent string, rows ...ledger.Row) {
	w.T.Helper()
	w.Seq[agent]++
	r := ledger.NewReport(agent, 1, w.Seq[agent], w.Total[agent], rows, w.At.UnixMilli(), false)
	w.Total[agent] = r.After
	receipts, err := w.Ledger.Settle(w.T.Context(), []ledger.Report{r})
	if err != nil || receipts[0].Status != ledger.Settled {
		w.T.Fatalf("settle: %+v, %v", receipts, err)
	}
	if _, _, err := w.Ledger.Fold(w.T.Context(), w.At); err != nil {
		w.T.Fatal(err)
	}
}

func used(slot time.Time, meter string, units int64) ledger.Row {
	return ledger.Row{Slot: slot.Truncate(5 * time.Minute).Unix(), Tenant: "acme", Limit: meter, Meter: meter, Version: 2, Admitted: units}
}

const quotaPolicy = `webhooks:
  ops: {url: "https://hooks.example.com/", secret: {env: QUOTA_WEBHOOK_OPS}}
alerts:
  - {name: used, quota: monthly, webhooks: [ops]}
  - {name: day, quota: daily, at: 100%}
plans:
  free:
    limits:
      - {name: monthly, algorithm: fixed_window, rate: 1000/month, meter: monthly}
      - {name: daily, algorithm: fixed_window, rate: 100/day, zone: Europe/Berlin, meter: daily}
  paid:
    limits: [{name: monthly, algorithm: fixed_window, rate: 10000/month, meter: monthly}]
tenants: [{id: acme, plan: free}]
`

// A threshold is told of once in a window, whatever goes up and down; several that one
// block passes come in their order; what was used before an edge and sealed after it counts where it
// was used; another plan's units count from when it holds.
func TestQuotaAlerts(t *testing.T) { servertest.OnEngines(t, testQuotaAlerts) }

func testQuotaAlerts(t *testing.T, on servertest.Engine) {
	w := newWatched(t, on, quotaPolicy)
	w.wants("before anything was used", "")
	w.rows("gw", used(w.At, "monthly", 499))
	w.wants("below", "")
	w.rows("gw", used(w.At, "monthly", 1))
	w.wants("at half", "used acme 50% in 2026-10-01T00:00:00Z: 500 of 1000")
	w.wants("again", "")
	w.At = w.At.Add(time.Hour)
	w.rows("gw", used(w.At, "monthly", 600))
	w.wants("two at once", "used acme 80% in 2026-10-01T00:00:00Z: 1100 of 1000; used acme 100% in 2026-10-01T00:00:00Z: 1100 of 1000")
	all, err := w.store.Events(t.Context(), alert.Query{Forward: true, N: 10})
	if err != nil || len(all) != 3 || all[0].Number != 1 || all[1].Threshold != 800_000 || all[2].Threshold != 1_000_000 {
		t.Errorf("kept: %+v, %v", all, err)
	}
	one, err := w.store.Event(t.Context(), 3)
	if err != nil || len(one.Deliveries) != 1 || one.Deliveries[0].State != alert.Pending || !strings.Contains(one.Body, `"threshold":"100%"`) {
		t.Errorf("kept: %+v, %v", one, err)
	}

	if _, err := w.Policy.SetTenantPlan(t.Context(), "ann", "acme", "paid"); err != nil {
		t.Fatal(err)
	}
	w.rows("gw", used(w.At, "monthly", 4000))
	w.wants("half of a larger plan: it is of other units", "used acme 50% in 2026-10-01T00:00:00Z: 5100 of 10000")
	w.wants("again", "")
	w.rows("gw", used(w.At, "monthly", 5000))
	w.wants("all of it", "used acme 80% in 2026-10-01T00:00:00Z: 10100 of 10000; used acme 100% in 2026-10-01T00:00:00Z: 10100 of 10000")

	// The month turns with usage under way.
	turn := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	w.At = turn.Add(-time.Minute)
	if _, err := w.Policy.SetTenantPlan(t.Context(), "ann", "acme", "free"); err != nil {
		t.Fatal(err)
	}
	w.wants("in the last minute", "")
	w.At = turn.Add(10 * time.Second)
	w.rows("gw", used(w.At, "monthly", 20))
	w.wants("in the next month", "")
	w.At = time.Date(2026, 12, 1, 0, 0, 10, 0, time.UTC)
	w.rows("gw", used(w.At.Add(-time.Minute), "monthly", 830), used(w.At, "monthly", 500))
	w.wants("on both sides of an edge", "used acme 50% in 2026-11-01T00:00:00Z: 850 of 1000; used acme 80% in 2026-11-01T00:00:00Z: 850 of 1000; used acme 50% in 2026-12-01T00:00:00Z: 500 of 1000")
}

// How far looks are behind is how long the oldest block waits that none was at.
func TestAgeOfLooks(t *testing.T) { servertest.OnEngines(t, testAgeOfLooks) }

func testAgeOfLooks(t *testing.T, on servertest.Engine) {
	w := newWatched(t, on, quotaPolicy)
	g := &lookGauge{store: w.store, books: w.Books, desc: prometheus.NewDesc("age", "", nil, nil)}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(g)
	age := func(what string, least, most time.Duration) {
		t.Helper()
		all, err := registry.Gather()
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		if got := all[0].Metric[0].GetGauge().GetValue(); got < least.Seconds() || got > most.Seconds() {
			t.Errorf("%s: %.0f s, want %s to %s", what, got, least, most)
		}
	}
	age("before any block", 0, 0)
	now := time.Now()
	w.At = now.Add(-time.Hour)
	w.rows("gw", used(w.At, "monthly", 1))
	w.round()
	age("after a look", 0, 0)
	w.At = now.Add(-10 * time.Minute)
	w.rows("gw", used(w.At, "monthly", 1))
	w.At = now.Add(-time.Minute)
	w.rows("gw", used(w.At, "monthly", 1))
	age("with two blocks more", 9*time.Minute, 12*time.Minute)
	w.round()
	age("after the next look", 0, 0)
}

// A day on which clocks are put back has 25 hours in its zone, and one window.
func TestQuotaAlertsOfADayWithAnHourMore(t *testing.T) {
	servertest.OnEngines(t, testQuotaAlertsOfADayWithAnHourMore)
}

func testQuotaAlertsOfADayWithAnHourMore(t *testing.T, on servertest.Engine) {
	w := newWatched(t, on, quotaPolicy)
	w.wants("before", "")
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	day := time.Date(2026, 10, 25, 0, 0, 0, 0, berlin)
	w.At = day.Add(24*time.Hour + 50*time.Minute) // 23:50 of the same day
	w.rows("gw", used(day, "daily", 40), used(w.At, "daily", 59), used(day.Add(-5*time.Minute), "daily", 50))
	w.wants("within 25 hours", "")
	w.At = w.At.Add(20 * time.Minute)
	w.rows("gw", used(day.Add(25*time.Hour-5*time.Minute), "daily", 1), used(day.Add(25*time.Hour), "daily", 99))
	w.wants("their last slot", "day acme 100% in 2026-10-25T00:00:00+02:00: 100 of 100")
}

// A correction takes a tenant below a threshold; when it comes there again nothing is told.
func TestQuotaAlertsAfterACorrection(t *testing.T) {
	servertest.OnEngines(t, testQuotaAlertsAfterACorrection)
}

func testQuotaAlertsAfterACorrection(t *testing.T, on servertest.Engine) {
	w := newWatched(t, on, quotaPolicy)
	w.rows("gw", used(w.At, "monthly", 500))
	w.wants("at half", "used acme 50% in 2026-10-01T00:00:00Z: 500 of 1000")
	service := books.New(books.Config{Books: w.Books, Policy: w.Policy, Versions: w.s})
	_, err := service.Adjust(servertest.AsAnn(t.Context()), &quotav1.AdjustRequest{IdempotencyKey: "k", Reason: "billed twice", Units: -300, EntryHeight: 1, EntryN: 0})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Ledger.Fold(t.Context(), w.At); err != nil {
		t.Fatal(err)
	}
	w.wants("less than was told", "")
	w.rows("gw", used(w.At, "monthly", 350))
	w.wants("there again", "")
	w.rows("gw", used(w.At, "monthly", 250))
	w.wants("at the next", "used acme 80% in 2026-10-01T00:00:00Z: 800 of 1000")
}

// failing is a store that dies at some step.
type failing struct {
	alert.Store
	raise, marks bool
}

var errKilled = fmt.Errorf("killed: %w", context.Canceled)

func (f *failing) Raise(ctx context.Context, found []alert.Found) ([]alert.Event, error) {
	all, err := f.Store.Raise(ctx, found)
	if f.raise { // kept, and whoever did it died before it knew
		return nil, fmt.Errorf("%w: %w", policystore.ErrUnavailable, errKilled)
	}
	return all, err
}

func (f *failing) SetMarks(ctx context.Context, m alert.Marks) error {
	if f.marks {
		return errKilled
	}
	return f.Store.SetMarks(ctx, m)
}

// A leader that is killed anywhere between a block and its marks leaves everything told
// once, by whoever leads next.
func TestAlertsSurviveTheirLeader(t *testing.T) {
	servertest.OnEngines(t, testAlertsSurviveTheirLeader)
}

func testAlertsSurviveTheirLeader(t *testing.T, on servertest.Engine) {
	for _, f := range []failing{{raise: true}, {marks: true}, {raise: true, marks: true}} {
		w := newWatched(t, on, quotaPolicy)
		w.wants("before", "")
		w.rows("gw", used(w.At, "monthly", 900))
		f.Store = w.store
		w.e.Store = &f
		if err := w.e.Round(t.Context(), leads); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v: %v, want it killed", f, err)
		}
		w.e.Store = w.store // another server
		w.round()
		w.round()
		all, err := w.store.Events(t.Context(), alert.Query{N: 10})
		if err != nil || len(all) != 2 {
			t.Errorf("%+v: %d events, %v, want 2", f, len(all), err)
		}
		due, err := w.store.Claim(t.Context(), "ops", w.At.Add(time.Hour), w.At.Add(2*time.Hour), 10)
		if err != nil || len(due) != 2 || due[0].Number != 1 {
			t.Errorf("%+v: to be delivered: %+v, %v", f, due, err)
		}
	}
	w := newWatched(t, on, quotaPolicy)
	w.wants("before", "")
	w.rows("gw", used(w.At, "monthly", 900))
	if err := w.e.Round(t.Context(), func(context.Context) (bool, error) { return false, nil }); err == nil {
		t.Error("a round went on though another leads")
	}
	if all, err := w.store.Events(t.Context(), alert.Query{N: 10}); err != nil || len(all) != 0 {
		t.Errorf("told by one that leads no more: %+v, %v", all, err)
	}
}

// midway is a store whose database goes away, or whose server dies, once so many of a round's parts are kept.
type midway struct {
	alert.Store
	left int
	kept bool // the part at which it goes away is
}

func (m *midway) Raise(ctx context.Context, found []alert.Found) ([]alert.Event, error) {
	if m.left--; m.left >= 0 {
		return m.Store.Raise(ctx, found)
	}
	if m.kept {
		if _, err := m.Store.Raise(ctx, found); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: the connection is gone", policystore.ErrUnavailable)
}

// A round that breaks off between tenants, because the database is gone or the server is, is made to its end by the
// next one, on this server or another: everything is told once, and no tenant is left out.
func TestAlertsGoOnWhereARoundBrokeOff(t *testing.T) {
	unraced.Only(t) // one goroutine does everything
	servertest.OnEngines(t, testAlertsGoOnWhereARoundBrokeOff)
}

func testAlertsGoOnWhereARoundBrokeOff(t *testing.T, on servertest.Engine) {
	const tenants = 600 // more than are kept at once
	for _, m := range []midway{{left: 0}, {left: 1}, {left: 1, kept: true}, {left: 2, kept: true}} {
		for _, another := range []bool{false, true} {
			w := newWatched(t, on, "alerts: [{name: used, quota: monthly, at: 100%}]\nplans: {p: {limits: [{name: monthly, algorithm: fixed_window, rate: 10/month, meter: m}]}}\ndefault_plan: p\ntenants: [{id: acme, plan: p}]\n")
			w.wants("before", "")
			var rows []ledger.Row
			for i := range tenants {
				rows = append(rows, ledger.Row{Slot: w.At.Unix(), Tenant: fmt.Sprintf("t%03d", i), Limit: "monthly", Meter: "m", Version: 2, Admitted: 10})
			}
			w.rows("gw", rows...)
			broken := m
			broken.Store = w.store
			w.e.Store = &broken
			if err := w.e.Round(t.Context(), leads); !errors.Is(err, policystore.ErrUnavailable) {
				t.Fatalf("%+v: %v, want the database gone", m, err)
			}
			if len(w.failed) > 0 {
				t.Errorf("%+v: a database that is gone is no tenant's fault: %d of them, first %s", m, len(w.failed), w.failed[0])
			}
			if marks, err := w.store.Marks(t.Context()); err != nil || marks.Height != 0 {
				t.Errorf("%+v: marks %+v, %v: what was not looked at counts as looked at", m, marks, err)
			}
			w.e.Store = w.store
			if another {
				w.e = &alert.Evaluator{Store: w.store, Policy: w.e.Policy, Usage: w.e.Usage, Spending: w.e.Spending, InForce: w.e.InForce, Now: w.e.Now, Looked: w.e.Looked, Raised: w.e.Raised, Turned: w.e.Turned, Failed: w.e.Failed}
			}
			w.round()
			w.wants("once more", "")
			told := make(map[string]int)
			for after := int64(0); ; {
				page, err := w.store.Events(t.Context(), alert.Query{Forward: true, After: after, N: 500})
				if err != nil {
					t.Fatal(err)
				}
				for i := range page {
					told[page[i].Tenant]++
					after = page[i].Number
				}
				if len(page) < 500 {
					break
				}
			}
			if len(told) != tenants {
				t.Errorf("%+v, by another %t: told of %d tenants, want %d", m, another, len(told), tenants)
			}
			for id, n := range told {
				if n != 1 {
					t.Errorf("%+v: told %d times of %s", m, n, id)
				}
			}
		}
	}
}

// Alerts that are added are told of what is so already, of every tenant.
func TestAlertsThatAreAdded(t *testing.T) { servertest.OnEngines(t, testAlertsThatAreAdded) }

func testAlertsThatAreAdded(t *testing.T, on servertest.Engine) {
	without := strings.Replace(quotaPolicy, "  - {name: used, quota: monthly, webhooks: [ops]}\n", "", 1)
	w := newWatched(t, on, without)
	w.rows("gw", used(w.At, "monthly", 700))
	w.wants("without", "")
	w.apply(quotaPolicy)
	w.wants("with", "used acme 50% in 2026-10-01T00:00:00Z: 700 of 1000")
	w.apply(strings.Replace(quotaPolicy, "name: used, quota: monthly", "name: used, quota: monthly, at: [60%]", 1))
	w.wants("with another threshold", "used acme 60% in 2026-10-01T00:00:00Z: 700 of 1000")
	w.apply(strings.Replace(quotaPolicy, "name: used, quota: monthly", "name: used, quota: monthly, at: [10%], tenants: [other]", 1))
	w.wants("of another tenant", "")
}

// Denials are held against their own past: a share that jumps is told of once a day, a
// steady one and a few after silence are not.
func TestDenialAlerts(t *testing.T) { servertest.OnEngines(t, testDenialAlerts) }

func testDenialAlerts(t *testing.T, on servertest.Engine) {
	w := newWatched(t, on, `alerts: [{name: refused, denials: requests, over: 10m, against: 2h, least: 50, at: [300%, 1000%]}]
plans:
  free: {limits: [{name: requests, rate: 100/hour, meter: requests}]}
tenants: [{id: acme, plan: free}]
`)
	w.wants("before", "")
	denied := func(admitted, denied int64) {
		t.Helper()
		r := used(w.At, "requests", admitted)
		r.Denied = denied
		w.rows("gw", r)
		w.At = w.At.Add(5 * time.Minute)
	}
	for range 24 {
		denied(95, 5)
		w.wants("a share of 5 %", "")
	}
	denied(60, 40)
	w.wants("40 of 100: too few yet", "")
	denied(80, 20)
	w.wants("60 of 200", "refused acme 300% in 2026-10-01: 30% of 5%")
	denied(60, 40)
	w.wants("again on that day", "")
	denied(0, 5000)
	w.wants("nearly all", "refused acme 1000% in 2026-10-01: 98.8235% of 7.0833%")
	w.At = time.Date(2026, 10, 3, 0, 0, 0, 0, time.UTC)
	denied(0, 49)
	w.wants("a few after a quiet past", "")
	denied(0, 51)
	w.wants("many after a quiet past", "refused acme 300% in 2026-10-03: 100% of 0%; refused acme 1000% in 2026-10-03: 100% of 0%")
}

// What a cap counts is what the preview has as usage, through changes of plan and price within an hour.
func TestSpendingIsThePreviews(t *testing.T) { servertest.OnEngines(t, testSpendingIsThePreviews) }

func testSpendingIsThePreviews(t *testing.T, on servertest.Engine) {
	w := newWatched(t, on, servertest.PricedPolicy)
	check := func(what string, want int64) {
		t.Helper()
		got, err := w.spent("acme")
		if err != nil || len(got) != 1 || got[0].Charges["USD"] != want || !got[0].Current {
			t.Fatalf("%s: %+v, %v, want %d", what, got, err, want)
		}
		p, err := w.s.PreviewStatement(servertest.AsAnn(t.Context()), &quotav1.PreviewStatementRequest{Tenant: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		var d billing.Statement
		if err := json.Unmarshal([]byte(p.Statement.Document), &d); err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, l := range d.Lines {
			if l.Kind == billing.KindUsage || l.Kind == billing.KindOverage {
				sum += l.Amount
			}
		}
		if sum != want {
			t.Errorf("%s: the preview has %d, want %d", what, sum, want)
		}
	}
	w.rows("gw", used(w.At, "requests", 500))
	check("on a plan without a price", 0)
	w.At = w.At.Add(7*24*time.Hour + 17*time.Minute)
	w.rows("gw", used(w.At.Add(-10*time.Minute), "requests", 100)) // of the plan before, in the same hour
	if _, err := w.Policy.SetTenantPlan(t.Context(), "ann", "acme", "paid"); err != nil {
		t.Fatal(err)
	}
	w.At = w.At.Add(10 * time.Minute)
	w.rows("gw", used(w.At, "requests", 900))
	check("within the first tier", 4500)
	w.At = w.At.Add(time.Hour)
	w.rows("gw", used(w.At, "requests", 300))
	check("within the second", 5200)
	if _, err := w.Policy.GiveCredit(t.Context(), "ann", terms.Credit{ID: "c", Tenant: "acme", Currency: "USD", Amount: 200, Rollover: -1}); err != nil {
		t.Fatal(err)
	}
	check("with a credit that the fee takes", 5200)
}

// A tenant that cannot be looked at is no other's concern.
func TestAlertsOfATenantThatFails(t *testing.T) {
	servertest.OnEngines(t, testAlertsOfATenantThatFails)
}

func testAlertsOfATenantThatFails(t *testing.T, on servertest.Engine) {
	w := newWatched(t, on, strings.Replace(quotaPolicy, "  paid:", "  paid:\n    price: {currency: USD, meters: {monthly: {unit: 1}}}\n    spending_cap: {amount: 5.00 USD, at: stop}", 1))
	if _, err := w.Policy.CreateTenant(t.Context(), "ann", "aaa", "paid", ""); err != nil {
		t.Fatal(err)
	}
	spending := w.e.Spending
	w.e.Spending = func(ctx context.Context, all []alert.Spender, sum alert.Sum) error {
		err := spending(ctx, all, sum)
		for i := range all {
			if all[i].ID == "aaa" {
				all[i].Err = errors.New("no such zone")
			}
		}
		return err
	}
	w.rows("gw", used(w.At, "monthly", 500))
	w.raised = nil
	if err := w.e.Round(t.Context(), leads); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.failed, []string{"aaa: no such zone"}) || len(w.raised) != 1 {
		t.Errorf("failed %q, raised %q", w.failed, w.raised)
	}
}

// broken is a store of which one tenant cannot be made out.
type broken struct{ policystore.Store }

func (b broken) faulty(all []limit.Tenant, err error) ([]limit.Tenant, error) {
	if slices.ContainsFunc(all, func(t limit.Tenant) bool { return t.ID == "bad" }) {
		return all, policystore.FaultyTenants{"bad": errors.New("no such limit")}
	}
	return all, err
}

func (b broken) Tenants(ctx context.Context, ids []string) ([]limit.Tenant, error) {
	return b.faulty(b.Store.Tenants(ctx, ids))
}

func (b broken) TenantPage(ctx context.Context, after string, n int) ([]limit.Tenant, error) {
	return b.faulty(b.Store.TenantPage(ctx, after, n))
}

func (b broken) TenantChanges(ctx context.Context, after int64, n int) ([]limit.Tenant, int64, error) {
	all, through, err := b.Store.TenantChanges(ctx, after, n)
	all, err = b.faulty(all, err)
	return all, through, err
}

// A tenant that cannot be made out is counted, and stops no other: of those with new usage, of
// those that were changed, nor of all after the policy has.
func TestAlertsBesideATenantThatIsBroken(t *testing.T) {
	servertest.OnEngines(t, testAlertsBesideATenantThatIsBroken)
}

func testAlertsBesideATenantThatIsBroken(t *testing.T, on servertest.Engine) {
	w := newWatched(t, on, quotaPolicy)
	w.e.Policy = broken{w.e.Policy}
	for _, id := range []string{"bad", "worse"} {
		if _, err := w.Policy.CreateTenant(t.Context(), "ann", id, "free", ""); err != nil {
			t.Fatal(err)
		}
	}
	round := func(what, want string) {
		t.Helper()
		w.raised, w.failed = nil, nil
		if err := w.e.Round(t.Context(), leads); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(w.raised, "; "); got != want || len(w.failed) == 0 || w.failed[0] != "bad: no such limit" {
			t.Errorf("%s: raised %s, failed %q; want %s", what, got, w.failed, want)
		}
	}
	of := func(tenant string, units int64) ledger.Row {
		r := used(w.At, "monthly", units)
		r.Tenant = tenant
		return r
	}
	round("all", "")
	w.rows("gw", of("acme", 500), of("bad", 500), of("worse", 500))
	round("with new usage", "used acme 50% in 2026-10-01T00:00:00Z: 500 of 1000; used worse 50% in 2026-10-01T00:00:00Z: 500 of 1000")
	w.apply(strings.Replace(quotaPolicy, "quota: monthly", "quota: monthly, at: [40%]", 1))
	round("under another policy", "used acme 40% in 2026-10-01T00:00:00Z: 500 of 1000; used worse 40% in 2026-10-01T00:00:00Z: 500 of 1000")
	for _, id := range []string{"bad", "worse"} {
		if _, err := w.Policy.SetSuspended(t.Context(), "ann", id, true); err != nil {
			t.Fatal(err)
		}
	}
	round("changed", "")
	if m, err := w.store.Marks(t.Context()); err != nil || m.Sweeping || m.Height != 1 {
		t.Errorf("marks %+v, %v: not all was looked at", m, err)
	}
}

// The policy that had the only cap is replaced by one without, which this server has in
// memory only after the row in the audit log: the tenant goes on.
func TestSpendingCapGoesWithItsPolicy(t *testing.T) {
	servertest.OnEngines(t, testSpendingCapGoesWithItsPolicy)
}

func testSpendingCapGoesWithItsPolicy(t *testing.T, on servertest.Engine) {
	text := strings.Replace(servertest.PricedPolicy, "plan: free}]", "plan: paid}]", 1)
	w := newWatched(t, on, strings.Replace(text, "    price:", "    spending_cap: {amount: 10.00 USD, at: stop}\n    price:", 1))
	w.round()
	w.At = w.At.Add(10 * time.Minute)
	w.rows("gw", used(w.At, "requests", 300))
	w.round()
	before := w.e.InForce
	w.apply(text)
	after := w.e.InForce
	w.e.InForce = before
	w.round()
	w.e.InForce = after
	w.round()
	if want := []string{"acme stop", "acme "}; !slices.Equal(w.turned, want) {
		t.Errorf("turned %q, want %q", w.turned, want)
	}
}

// A cap that is raised within a period and reached again is told of again, once for each amount
// and for what it does; one that is put back is not.
func TestSpendingCapIsReachedAgain(t *testing.T) {
	servertest.OnEngines(t, testSpendingCapIsReachedAgain)
}

func testSpendingCapIsReachedAgain(t *testing.T, on servertest.Engine) {
	capped := func(amount, at string) string {
		text := strings.Replace(servertest.PricedPolicy, "plan: free}]", "plan: paid}]", 1)
		return "alerts: [{name: spent, spending: cap, at: 100%}]\n" + strings.Replace(text, "    price:", "    spending_cap: {amount: "+amount+" USD, at: "+at+"}\n    price:", 1)
	}
	w := newWatched(t, on, capped("10.00", "stop"))
	w.wants("before", "")
	w.At = w.At.Add(10 * time.Minute)
	w.rows("gw", used(w.At, "requests", 300)) // 15.00 USD
	w.wants("reached", "spent acme 100% in 2026-10: 15.00 USD of 10.00 USD; spending_cap acme 100% in 2026-10: 15.00 USD of 10.00 USD")
	w.wants("again", "")
	w.apply(capped("20.00", "stop"))
	w.wants("raised", "")
	w.rows("gw", used(w.At, "requests", 100))
	w.wants("reached again", "spent acme 100% in 2026-10: 20.00 USD of 20.00 USD; spending_cap acme 100% in 2026-10: 20.00 USD of 20.00 USD")
	w.apply(capped("10.00", "stop"))
	w.wants("put back to what was told of", "")
	w.apply(capped("20.00", "throttle to 1/second"))
	w.wants("with another effect", "spending_cap acme 100% in 2026-10: 20.00 USD of 20.00 USD")
	w.apply(capped("20.00", "alert"))
	w.wants("without one", "")
	if want := []string{"acme stop", "acme ", "acme stop", "acme throttle", "acme "}; !slices.Equal(w.turned, want) {
		t.Errorf("turned %q, want %q", w.turned, want)
	}
	// Of usage that is in a block after the period's end, nothing is done any more: no news.
	w.apply(capped("10.00", "stop"))
	w.At = time.Date(2026, 11, 1, 0, 0, 10, 0, time.UTC)
	w.rows("gw", used(w.At.Add(-time.Minute), "requests", 10))
	w.wants("late usage of the period before", "")
}

// A credit pays the fee before it pays usage: what a cap counts is no less for it.
func TestACreditForTheFeeIsNoCreditForUsage(t *testing.T) {
	servertest.OnEngines(t, testACreditForTheFeeIsNoCreditForUsage)
}

func testACreditForTheFeeIsNoCreditForUsage(t *testing.T, on servertest.Engine) {
	w := newWatched(t, on, strings.Replace(servertest.PricedPolicy, "plan: free}]", "plan: paid}]", 1))
	w.At = w.At.Add(10 * time.Minute)
	w.rows("gw", used(w.At, "requests", 800))
	for i, c := range []struct{ credit, want int64 }{{3100, 4000}, {1000, 3000}, {9000, 0}} {
		if _, err := w.Policy.GiveCredit(t.Context(), "ann", terms.Credit{ID: fmt.Sprint("c", i), Tenant: "acme", Currency: "USD", Amount: c.credit, Rollover: -1}); err != nil {
			t.Fatal(err)
		}
		got, err := w.spent("acme")
		if err != nil || len(got) != 1 || got[0].Charges["USD"] != c.want {
			t.Errorf("with a credit of %d more: %+v, %v, want %d", c.credit, got, err, c.want)
		}
	}
}
