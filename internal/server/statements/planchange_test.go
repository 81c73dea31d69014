package statements

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/server/admin"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (b *billed) admin() *admin.Service {
	now := func() time.Time { return b.At }
	return admin.New(admin.Config{Store: b.Policy, PeriodAt: b.s.PeriodAt, Now: now})
}

// plans says which plan acme had when, and will have.
func (b *billed) plans() string {
	b.T.Helper()
	resp, err := b.admin().ListPlanChanges(servertest.AsAnn(b.T.Context()), &quotav1.ListPlanChangesRequest{Tenant: "acme"})
	if err != nil {
		b.T.Fatal(err)
	}
	var all []string
	for _, c := range resp.Changes {
		state := ""
		if c.Scheduled {
			state = "?"
		}
		if c.Failed != "" {
			state = "!"
		}
		all = append(all, fmt.Sprintf("%s %s%s", time.UnixMilli(c.FromMs).UTC().Format("01-02T15:04"), c.Plan, state))
	}
	return strings.Join(all, ", ")
}

func (b *billed) wantPlans(what, want string) {
	b.T.Helper()
	if got := b.plans(); got != want {
		b.T.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// A plan changes when it was to, as of that time though no server looked until later; two do not come at
// one time, and what makes no sense is refused and leaves nothing.
func TestPlanChanges(t *testing.T) { servertest.OnEngines(t, testPlanChanges) }

func testPlanChanges(t *testing.T, on servertest.Engine) {
	b := newBilledOn(t, on)
	store := b.Policy
	begin := b.At
	at := begin.Add(10*24*time.Hour + 150*time.Second)
	schedule := func(plan string, at time.Time) error {
		_, err := store.SchedulePlan(t.Context(), "ann", "acme", plan, at)
		return err
	}
	for _, bad := range []struct {
		what string
		err  error
		is   error
		says string
	}{
		{"an unknown plan", schedule("gold", at), fault.ErrInvalid, `no plan "gold"`},
		{"now", schedule("paid", begin), fault.ErrInvalid, "is past"},
		{"the past", schedule("paid", begin.Add(-time.Hour)), fault.ErrInvalid, "is past"},
		{"too far", schedule("paid", begin.AddDate(101, 0, 0)), fault.ErrInvalid, "hundred years"},
		{"absurdly far", schedule("paid", time.UnixMilli(253_402_300_799_999)), fault.ErrInvalid, "hundred years"},
	} {
		if !errors.Is(bad.err, bad.is) || !strings.Contains(bad.err.Error(), bad.says) {
			t.Errorf("%s: %v, want %q", bad.what, bad.err, bad.says)
		}
	}
	b.wantPlans("after what was refused", "10-01T00:00 free")
	for range 2 { // asked for again it is the same
		if err := schedule("paid", at); err != nil {
			t.Fatal(err)
		}
	}
	if err := schedule("free", at); !errors.Is(err, fault.ErrExists) {
		t.Errorf("another plan at that time: %v", err)
	}
	if err := schedule("free", at.Add(5*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := schedule("paid", at.Add(6*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.UnschedulePlan(t.Context(), "ann", "acme", at.Add(6*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.UnschedulePlan(t.Context(), "ann", "acme", at.Add(6*24*time.Hour)); !errors.Is(err, fault.ErrNotFound) {
		t.Errorf("taken back again: %v", err)
	}
	b.wantPlans("scheduled", "10-01T00:00 free, 10-11T00:02 paid?, 10-16T00:02 free?")
	// A document without a plan that somebody will have is refused.
	doc, err := policy.Parse("", []byte(strings.Replace(servertest.PricedPolicy, "  paid:", "  gold:", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Apply(t.Context(), "ann", doc, 0, true); !errors.Is(err, policystore.ErrInvalid) || !strings.Contains(err.Error(), "will have it: acme") {
		t.Errorf("without a plan that comes: %v", err)
	}
	b.At = at.Add(-time.Millisecond)
	if _, err := store.MakePlanChanges(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantPlans("just before", "10-01T00:00 free, 10-11T00:02 paid?, 10-16T00:02 free?")
	b.At = at.Add(7 * 24 * time.Hour) // no server was there for a week
	if _, err := store.SetTenantPlan(t.Context(), "ann", "acme", "paid"); err != nil {
		t.Fatal(err)
	}
	b.wantPlans("a week late, and changed by hand", "10-01T00:00 free, 10-11T00:02 paid, 10-16T00:02 free, 10-18T00:02 paid")
	rows, err := store.Audit(t.Context(), policystore.AuditQuery{N: 20, Object: "acme", Action: "tenant."})
	if err != nil {
		t.Fatal(err)
	}
	var did []string
	for _, r := range rows {
		did = append(did, r.Actor+" "+r.Action)
	}
	want := "ann tenant.set-plan, ann tenant.set-plan, ann tenant.set-plan, ann tenant.unschedule-plan, ann tenant.schedule-plan, ann tenant.schedule-plan, ann tenant.schedule-plan, ann tenant.apply"
	if got := strings.Join(did, ", "); got != want {
		t.Errorf("audited\n got %s\nwant %s", got, want)
	}
	h, err := store.Heads(t.Context())
	if err != nil || h.Due != 0 {
		t.Errorf("due: %d, %v", h.Due, err)
	}
	for i := range terms.MaxPlanChanges {
		if err := schedule("free", b.At.Add(time.Duration(i+1)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if err := schedule("free", b.At.Add(time.Minute)); !errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), "as many as may") {
		t.Errorf("one more than may: %v", err)
	}
}

// A plan that does not fit when its time comes is told, keeps no other from its, and is made once it fits.
func TestPlanChangesThatDoNotFit(t *testing.T) { servertest.OnEngines(t, testPlanChangesThatDoNotFit) }

func testPlanChangesThatDoNotFit(t *testing.T, on servertest.Engine) {
	b := newBilledOn(t, on)
	store := b.Policy
	if _, err := store.CreateTenant(t.Context(), "ann", "zeta", "free", ""); err != nil {
		t.Fatal(err)
	}
	at := b.At.Add(time.Hour)
	for _, id := range []string{"acme", "zeta"} {
		if _, err := store.SchedulePlan(t.Context(), "ann", id, "paid", at); err != nil {
			t.Fatal(err)
		}
	}
	servertest.Spoil(t, b.Ledger, "acme") // overrides of a limit that is none of the plan's
	b.At = at.Add(time.Second)
	failed, err := store.MakePlanChanges(t.Context())
	if err != nil || len(failed) != 1 || failed[0].Tenant != "acme" || failed[0].Failed == "" {
		t.Fatalf("failed %+v, %v", failed, err)
	}
	if failed, err := store.MakePlanChanges(t.Context()); err != nil || len(failed) != 0 {
		t.Errorf("tried again though nothing has changed: %+v, %v", failed, err)
	}
	b.wantPlans("while it does not fit", "10-01T00:00 free, 10-01T01:00 paid!")
	if z, err := store.Subscriber(t.Context(), "zeta"); err != nil || z.Subscriptions[1].Plan != "paid" || z.Subscriptions[1].From != at.Unix() {
		t.Errorf("the other: %+v, %v", z, err)
	}
	doc, err := policy.Parse("", []byte(servertest.PricedPolicy+"  # acme has no overrides here\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Apply(t.Context(), "ann", doc, 0, false); err != nil {
		t.Fatal(err)
	}
	b.At = b.At.Add(time.Hour)
	if _, err := store.MakePlanChanges(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantPlans("once it fits", "10-01T00:00 free, 10-01T01:00 paid")
}

// extraPolicy has a limit that the paid plan has not: it does not fit who has an override of that.
const extraPolicy = `plans:
  free: {limits: [{name: requests, rate: 100/hour, meter: requests}, {name: extra, rate: 10/hour}]}
  paid:
    limits: [{name: requests, rate: 1000/hour, meter: requests}]
    price: {monthly: 30.00 USD, meters: {requests: {included: 10, tiers: [{unit: 0.05}]}}}
  gold:
    limits: [{name: requests, rate: 1000/hour, meter: requests}, {name: extra, rate: 10/hour}]
    price: {monthly: 60.00 USD}
tenants:
  - {id: org, plan: free}
  - {id: acme, plan: free, parent: org, billing: {pays: self}, limits: []}
`

// stuck has acme change to the paid plan on the 21st of October, which does not fit it then; fits makes it fit. With a
// payer its parent pays for it.
func stuck(t *testing.T, on servertest.Engine, payer string) (b *billed, fits func()) {
	b = newBilledOn(t, on)
	text := strings.Replace(extraPolicy, "pays: self", "pays: "+payer, 1)
	apply := func(overrides string) {
		t.Helper()
		if err := b.ApplyText(strings.Replace(text, "limits: []", "limits: ["+overrides+"]", 1)); err != nil {
			t.Fatal(err)
		}
	}
	apply("")
	at := b.At.AddDate(0, 0, 20)
	if _, err := b.Policy.SchedulePlan(t.Context(), "ann", "acme", "paid", at); err != nil {
		t.Fatal(err)
	}
	apply("{name: extra, burst: 20}")
	b.At = at.Add(time.Second)
	if failed, err := b.Policy.MakePlanChanges(t.Context()); err != nil || len(failed) != 1 {
		t.Fatalf("failed %+v, %v", failed, err)
	}
	return b, func() {
		t.Helper()
		// The document names a plan, so it gives the tenant the one that it has.
		s, err := b.Policy.Subscriber(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		has := s.Subscriptions[len(s.Subscriptions)-1].Plan
		text = strings.Replace(text, "{id: acme, plan: free", "{id: acme, plan: "+has, 1)
		apply("")
		if _, err := b.Policy.MakePlanChanges(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A change that fits only after a statement of its time was closed counts from that statement's end: what was closed
// stays right, and late usage of then is of the plan that the statement has.
func TestPlanChangesThatFitAfterAClose(t *testing.T) {
	servertest.OnEngines(t, testPlanChangesThatFitAfterAClose)
}

func testPlanChangesThatFitAfterAClose(t *testing.T, on servertest.Engine) {
	for payer, closes := range map[string]string{"self": "acme", "parent": "org"} {
		b, fits := stuck(t, on, payer)
		slot := b.At.AddDate(0, 0, 2).Truncate(time.Hour)
		b.At = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
		b.Of("acme", slot, 100)
		b.Of("acme", b.At.Add(-5*time.Minute), 0)
		if _, err := b.s.CloseStatement(servertest.AsAnn(t.Context()), &quotav1.CloseStatementRequest{Tenant: closes, Period: "2026-10", ForceReason: "a test"}); err != nil {
			t.Fatal(err)
		}
		fits()
		b.wantPlans(payer+": once it fits", "10-01T00:00 free, 11-01T00:00 paid")
		b.Of("acme", slot, 50) // late
		s := b.preview(closes, "2026-11")
		late, fee := int64(0), int64(0)
		for _, l := range s.Lines {
			if l.Period != "" {
				late += l.Amount
			} else {
				fee += l.Amount
			}
		}
		if late != 0 || fee != 3000 {
			t.Errorf("%s: late usage of the free plan comes to %d, want 0, and November to %d, want 3000: %+v", payer, late, fee, s.Lines)
		}
	}
}

// What a tenant was given since the time of a change that failed stays: it came later.
func TestPlanChangesThatAreOvertaken(t *testing.T) {
	servertest.OnEngines(t, testPlanChangesThatAreOvertaken)
}

func testPlanChangesThatAreOvertaken(t *testing.T, on servertest.Engine) {
	b, fits := stuck(t, on, "self")
	b.At = b.At.AddDate(0, 0, 4).Truncate(time.Hour)
	if _, err := b.Policy.SetTenantPlan(t.Context(), "ann", "acme", "gold"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Policy.MakePlanChanges(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantPlans("given another", "10-01T00:00 free, 10-25T00:00 gold")
	fits()
	b.wantPlans("and then it fits", "10-01T00:00 free, 10-25T00:00 gold")
	rows, err := b.Policy.Audit(t.Context(), policystore.AuditQuery{N: 1, Object: "acme", Action: "tenant.unschedule-plan"})
	if err != nil || len(rows) != 1 {
		t.Errorf("audited: %+v, %v", rows, err)
	}
}

// A plan that ends with its period is charged to its last second, and the next one from there, in the
// tenant's zone, whose clocks change in that month; a statement is right though no server has looked since.
func TestPlanChangesAtPeriodEnd(t *testing.T) { servertest.OnEngines(t, testPlanChangesAtPeriodEnd) }

func testPlanChangesAtPeriodEnd(t *testing.T, on servertest.Engine) {
	for zone, end := range map[string]string{"Europe/Berlin": "10-31T23:00", "Asia/Kolkata": "10-31T18:30", "Australia/Lord_Howe": "10-31T13:00"} {
		b := newBilledOn(t, on)
		doc, err := policy.Parse("", []byte(strings.Replace(servertest.PricedPolicy, "plan: free}", "plan: paid, billing: {zone: "+zone+"}}", 1)))
		if err != nil {
			t.Fatal(err)
		}
		b.At = b.At.Add(15 * 24 * time.Hour)
		if _, err := b.Policy.Apply(t.Context(), "ann", doc, 0, false); err != nil {
			t.Fatal(err)
		}
		p, err := b.s.PeriodAt(t.Context(), "acme", b.At)
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Unix(p.To, 0).UTC().Format("01-02T15:04"); got != end {
			t.Errorf("%s: the period ends at %s, want %s", zone, got, end)
		}
		if _, err := b.Policy.SchedulePlan(t.Context(), "ann", "acme", "free", time.Unix(p.To, 0)); err != nil {
			t.Fatal(err)
		}
		b.At = time.Unix(p.To, 0).Add(48 * time.Hour)
		b.Settle("gw", b.At, 0, b.At)
		for period, want := range map[string]string{"2026-10": "", "2026-11": "[]"} {
			s, err := b.s.PreviewStatement(t.Context(), &quotav1.PreviewStatementRequest{Tenant: "acme", Period: period})
			if err != nil {
				t.Fatal(err)
			}
			if want == "" && (len(s.Statement.Totals) != 1 || !strings.Contains(s.Statement.Document, fmt.Sprintf(`"to":%d}]`, p.To))) || want != "" && !strings.Contains(s.Statement.Document, `"lines":`+want) {
				t.Errorf("%s, %s: %s", zone, period, s.Statement.Document)
			}
		}
	}
}

// An override holds from its time to its end, on a store that is asked and on a server that looks for changes; one
// that is not in effect yet must fit the plan already.
func TestDatedOverrides(t *testing.T) { servertest.OnEngines(t, testDatedOverrides) }

func testDatedOverrides(t *testing.T, on servertest.Engine) {
	b := newBilledOn(t, on)
	override := func(text string) string {
		return strings.Replace(servertest.PricedPolicy, "plan: free}", "plan: paid, limits: ["+text+"]}", 1)
	}
	if err := b.ApplyText(override("{name: requests, rate: 7000/hour, from: 2026-10-02, until: 2026-10-03T00:00:00+02:00}")); err != nil {
		t.Fatal(err)
	}
	revision := int64(0)
	for _, at := range []struct {
		when string
		has  bool
	}{{"2026-10-01T23:59:59Z", false}, {"2026-10-02T00:00:00Z", true}, {"2026-10-02T21:59:59Z", true}, {"2026-10-02T22:00:00Z", false}} {
		var err error
		if b.At, err = time.Parse(time.RFC3339, at.when); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Policy.MakePlanChanges(t.Context()); err != nil {
			t.Fatal(err)
		}
		tenants, err := b.Policy.Tenants(t.Context(), []string{"acme"})
		if err != nil || (len(tenants[0].Overrides) == 1) != at.has {
			t.Errorf("%s: %+v, %v, want it: %t", at.when, tenants, err, at.has)
		}
		if r := tenants[0].Revision; r > revision != (at.when != "2026-10-02T21:59:59Z") {
			t.Errorf("%s: revision %d after %d: agents are told at edges, and only then", at.when, r, revision)
		} else {
			revision = r
		}
	}
	for what, text := range map[string]string{
		"ends before it begins": override("{name: requests, rate: 1/hour, from: 2026-10-02, until: 2026-10-01}"),
		"no time":               override("{name: requests, rate: 1/hour, from: soon}"),
		"an absurd time":        override("{name: requests, rate: 1/hour, until: 0001-01-01}"),
		"does not fit later":    override("{name: other, from: 2027-01-01}"),
		"of a plan":             strings.Replace(servertest.PricedPolicy, "rate: 100/hour", "rate: 100/hour, from: 2027-01-01", 1),
	} {
		if err := b.ApplyText(text); err == nil {
			t.Errorf("%s: it was applied", what)
		}
	}
}
