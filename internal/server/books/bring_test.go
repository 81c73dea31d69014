package books

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/servertest"
	"github.com/f4ee788f/quota/internal/server/statements"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Usage that somebody brings by hand is priced by the version in force in its slot, and refused where no statement
// would have it as it is meant.
func TestUsageBroughtByHand(t *testing.T) {
	b := servertest.NewStores(t, servertest.OnSQLite) // version 1, at the beginning of October: acme is on free
	october := b.At
	day := func(n int) time.Time { return october.AddDate(0, 0, n-1) }
	parse := func(text string) *policy.Document {
		t.Helper()
		doc, err := policy.Parse("quota.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	next := strings.Replace(servertest.PricedPolicy, "plans:\n", "limits: [{name: login, by: [tenant, ip/24, endpoint], rate: 5/minute, meter: logins}]\nplans:\n", 1)
	b.At = day(10).Add(2 * time.Minute)
	if a, err := b.Policy.Apply(t.Context(), "ann", parse(next), 0, false); err != nil || a.Version != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
	b.At = day(12)
	if a, err := b.Policy.SetShadow(t.Context(), "ann", parse(strings.Replace(next, "0.05", "0.06", 1)), false); err != nil || a.Version != 3 {
		t.Fatalf("%+v, %v", a, err)
	}
	b.At = day(20)
	s := &Service{books: b.Books, policy: b.Policy, versions: statements.New(b.Books, b.Policy, b.Now)}

	row := func(at time.Time, change func(*quotav1.LedgerRow)) *quotav1.LedgerRow {
		r := &quotav1.LedgerRow{SlotMs: at.UnixMilli(), Tenant: "acme", Limit: "requests", Meter: "requests", Admitted: 5}
		if change != nil {
			change(r)
		}
		return r
	}
	version := func(n int64) func(*quotav1.LedgerRow) { return func(r *quotav1.LedgerRow) { r.PolicyVersion = n } }
	login := func(attributes ...string) func(*quotav1.LedgerRow) {
		return func(r *quotav1.LedgerRow) { r.Limit, r.Meter, r.Attributes = "login", "logins", attributes }
	}
	for i, c := range []struct {
		name  string
		row   *quotav1.LedgerRow
		want  int64  // its version
		fault string // or why it is refused
	}{
		{"before the change", row(day(5), nil), 1, ""},
		{"in the slot that the change came in", row(day(10), nil), 1, ""},
		{"in the next one", row(day(10).Add(5*time.Minute), nil), 2, ""},
		{"now, with a trial beside", row(day(15), nil), 2, ""},
		{"a version of its own", row(day(5), version(2)), 2, ""},
		{"a version that was only tried", row(day(15), version(3)), 0, "version 3 was only tried"},
		{"a version that there is not", row(day(15), version(9)), 0, "there is no policy version 9"},
		{"a version below any", row(day(15), version(-1)), 0, "there is no policy version -1"},
		{"a limit misspelt", row(day(15), func(r *quotav1.LedgerRow) { r.Limit = "requsts" }), 0, `no limit "requsts" in version 2 under plan "free"; it has login, requests`},
		{"a limit of a later version", row(day(5), login()), 0, `no limit "login" in version 1`},
		{"a limit of the top level", row(day(15), login("ip=10.0.0.0/24", "endpoint=GET /")), 2, ""},
		{"an attribute misspelt", row(day(15), login("ip=10.0.0.0/24", "endpont=GET /")), 0, `attribute "endpont=GET /" is none of limit "login", which has those of ip/24, endpoint`},
		{"a plan of its own", row(day(5), func(r *quotav1.LedgerRow) { r.Plan = "paid" }), 1, ""},
		{"a plan that there is not", row(day(5), func(r *quotav1.LedgerRow) { r.Plan = "gold" }), 0, `there is no plan "gold" in version 1`},
		{"no meter", row(day(15), func(r *quotav1.LedgerRow) { r.Meter = "" }), 0, `its meter is empty, and limit "requests" feeds "requests"`},
		{"a meter misspelt", row(day(15), func(r *quotav1.LedgerRow) { r.Meter = "request" }), 0, `its meter is "request", and limit "requests" feeds "requests"`},
		{"before the tenant", row(day(1).Add(-5*time.Minute), version(1)), 0, `tenant "acme" began at 2026-10-01T00:00:00Z, and slot 2026-09-30T23:55:00Z is before`},
		{"nobody's", row(day(15), func(r *quotav1.LedgerRow) { r.Tenant = "acne" }), 0, `there is no tenant "acne"`},
	} {
		r := c.row
		back, err := s.Backfill(servertest.AsAnn(t.Context()), &quotav1.BackfillRequest{IdempotencyKey: fmt.Sprint("backfill", i), Reason: "r", Rows: []*quotav1.LedgerRow{r}})
		wantBrought(t, "backfill: "+c.name, back.GetCorrection(), err, c.want, c.fault)
		done, err := s.Adjust(servertest.AsAnn(t.Context()), &quotav1.AdjustRequest{IdempotencyKey: fmt.Sprint("adjust", i), Reason: "r", Units: 3, Tenant: r.Tenant, Limit: r.Limit,
			Meter: r.Meter, Attributes: r.Attributes, AtMs: r.SlotMs, PolicyVersion: r.PolicyVersion, Plan: r.Plan})
		wantBrought(t, "adjust: "+c.name, done.GetCorrection(), err, c.want, c.fault)
		if plan := cmp.Or(r.Plan, "free"); c.fault == "" && (back.Correction.Rows[0].Plan != plan || done.Correction.Rows[0].Plan != plan) {
			t.Errorf("%s: got %v, %v, want them under plan %s", c.name, back.GetCorrection(), done.GetCorrection(), plan)
		}
	}

	// Of several rows those that are refused are named, and none is taken.
	_, err := s.Backfill(servertest.AsAnn(t.Context()), &quotav1.BackfillRequest{IdempotencyKey: "three", Reason: "r", Rows: []*quotav1.LedgerRow{
		row(day(15), nil), row(day(15), version(3)), row(day(15), func(r *quotav1.LedgerRow) { r.Meter = "" }),
	}})
	wantBrought(t, "three rows", nil, err, 0, "2 of 3 rows are refused, and nothing was changed: row 2: policy version 3 was only tried")

	// An entry of a trial is not adjusted: nothing would be billed.
	r := ledger.NewReport("gw", 1, 1, 0, []ledger.Row{{Slot: day(15).Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 3, Admitted: 7}}, b.At.UnixMilli(), false)
	if receipts, err := b.Ledger.Settle(t.Context(), []ledger.Report{r}); err != nil || receipts[0].Status != ledger.Settled {
		t.Fatalf("%+v, %v", receipts, err)
	}
	for left := true; left; {
		if _, left, err = b.Ledger.Fold(t.Context(), b.At); err != nil {
			t.Fatal(err)
		}
	}
	newest, err := b.Books.Newest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for n := range int32(40) {
		e, err := s.TraceEntry(t.Context(), &quotav1.TraceEntryRequest{Height: newest.Height, N: n})
		if err != nil {
			break
		}
		if e.Row.PolicyVersion == 3 {
			found = true
			_, err = s.Adjust(servertest.AsAnn(t.Context()), &quotav1.AdjustRequest{IdempotencyKey: "tried", Reason: "r", Units: -3, EntryHeight: newest.Height, EntryN: n})
			wantBrought(t, "an entry of a trial", nil, err, 0, "version 3 was only tried")
		}
	}
	if !found {
		t.Error("the newest block has no entry of the trial")
	}
}

// A correction that is sent again is answered as it was, whatever was made of the policy, the tenant and the months
// meanwhile. With other content its key is taken.
func TestCorrectionsSentAgain(t *testing.T) { servertest.OnEngines(t, testCorrectionsSentAgain) }

func testCorrectionsSentAgain(t *testing.T, on servertest.Engine) {
	b := servertest.NewStores(t, on)
	october := b.At
	if err := b.ApplyText(strings.Replace(servertest.PricedPolicy, "plan: free}", "plan: free, limits: [{name: extra, rate: 10/hour, meter: extra}]}", 1)); err != nil {
		t.Fatal(err)
	}
	b.Settle("gw", october, 50, october)
	s := &Service{books: b.Books, policy: b.Policy, versions: statements.New(b.Books, b.Policy, b.Now)}
	b.At = october.AddDate(0, 0, 9)
	slot := b.At.Add(-time.Hour)
	rows := []*quotav1.LedgerRow{
		{SlotMs: slot.UnixMilli(), Tenant: "acme", Limit: "requests", Meter: "requests", Admitted: 5},
		{SlotMs: slot.Add(-time.Hour).UnixMilli(), Tenant: "acme", Limit: "requests", Meter: "requests", Plan: "paid", Admitted: 7},
		{SlotMs: slot.UnixMilli(), Tenant: "acme", Limit: "extra", Meter: "extra", Admitted: 9},
	}
	calls := map[string]func(more int64) (*quotav1.Correction, error){
		"backfill": func(more int64) (*quotav1.Correction, error) {
			rows[0].Admitted = 5 + more
			resp, err := s.Backfill(servertest.AsAnn(t.Context()), &quotav1.BackfillRequest{IdempotencyKey: "backfill", Reason: "r", Rows: rows})
			return resp.GetCorrection(), err
		},
		"adjust": func(more int64) (*quotav1.Correction, error) {
			resp, err := s.Adjust(servertest.AsAnn(t.Context()), &quotav1.AdjustRequest{IdempotencyKey: "adjust", Reason: "r", Units: -3 - more, Tenant: "acme", Limit: "requests", Meter: "requests", AtMs: slot.UnixMilli()})
			return resp.GetCorrection(), err
		},
		"adjust one of its own": func(more int64) (*quotav1.Correction, error) {
			resp, err := s.Adjust(servertest.AsAnn(t.Context()), &quotav1.AdjustRequest{IdempotencyKey: "own", Reason: "r", Units: 3 + more, Tenant: "acme", Limit: "extra", Meter: "extra", AtMs: slot.UnixMilli()})
			return resp.GetCorrection(), err
		},
		"adjust an entry": func(more int64) (*quotav1.Correction, error) {
			resp, err := s.Adjust(servertest.AsAnn(t.Context()), &quotav1.AdjustRequest{IdempotencyKey: "entry", Reason: "r", Units: -2 - more, EntryHeight: 1})
			return resp.GetCorrection(), err
		},
	}
	was := make(map[string]int64)
	for what, call := range calls {
		c, err := call(0)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		was[what] = c.Number
	}
	again := func(when string) {
		t.Helper()
		for what, call := range calls {
			if c, err := call(0); err != nil || c.Number != was[what] {
				t.Errorf("%s again %s: got %v, %v, want correction %d", what, when, c, err, was[what])
			}
			if c, err := call(1); !errors.Is(err, fault.ErrExists) {
				t.Errorf("%s %s, with one unit more: got %v, %v, want that its key is taken", what, when, c, err)
			}
		}
	}
	again("at once")
	// The policy has neither the limit nor the plan any more, and the tenant has not the one of its own.
	b.At = b.At.Add(24 * time.Hour)
	if err := b.ApplyText("plans: {other: {limits: [{name: calls, rate: 100/hour, meter: calls}]}}\ntenants: [{id: acme, plan: other}]\n"); err != nil {
		t.Fatal(err)
	}
	again("under another policy")
	s.policy = withoutVersions{b.Policy}
	s.versions = statements.New(nil, s.policy, nil)
	again("where no version can be read")
}

// withoutVersions is a policy store whose versions a later release wrote.
type withoutVersions struct{ policystore.Store }

func (s withoutVersions) Version(ctx context.Context, number int64) (policystore.Version, error) {
	v, err := s.Store.Version(ctx, number)
	v.Text = "{later: true}"
	return v, err
}

func wantBrought(t *testing.T, what string, got *quotav1.Correction, err error, version int64, says string) {
	t.Helper()
	if says != "" {
		if !errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, %v, want a refusal that says %q", what, got, err, says)
		}
		return
	}
	if err != nil || len(got.Rows) != 1 || got.Rows[0].PolicyVersion != version {
		t.Errorf("%s: got %v, %v, want it in version %d", what, got, err, version)
	}
}
