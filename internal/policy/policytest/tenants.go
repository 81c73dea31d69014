package policytest

// What the contract says of tenants: changes, plans, levels, pages.

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

func testTenants(t *testing.T, s policystore.Store) {
	apply(t, s, plans)
	created := must[limit.Tenant](t)(s.CreateTenant(t.Context(), "ann", "acme", "free", ""))
	want := limit.Tenant{ID: "acme", Exists: true, Plan: "free", Revision: 1}
	if !reflect.DeepEqual(created, want) {
		t.Errorf("created %+v, want %+v", created, want)
	}
	_, err := s.CreateTenant(t.Context(), "ann", "acme", "paid", "")
	is(t, "creating acme again", err, policystore.ErrExists)
	_, err = s.CreateTenant(t.Context(), "ann", "b", "gold", "")
	is(t, "a plan that is not there", err, policystore.ErrInvalid)
	_, err = s.CreateTenant(t.Context(), "ann", "b", "free", "nobody")
	is(t, "a parent that is not there", err, policystore.ErrInvalid)
	_, err = s.CreateTenant(t.Context(), "ann", "a b", "free", "")
	is(t, "an id with a blank", err, policystore.ErrInvalid)
	_, err = s.CreateTenant(t.Context(), "", "b", "free", "")
	is(t, "a change by nobody", err, policystore.ErrInvalid)
	must[limit.Tenant](t)(s.CreateTenant(t.Context(), "ann", "acme/team", "paid", "acme"))

	set := must[limit.Tenant](t)(s.SetTenantPlan(t.Context(), "ann", "acme", "paid"))
	if set.Plan != "paid" || set.Revision <= created.Revision {
		t.Errorf("after setting the plan: %+v", set)
	}
	h := heads(t, s)
	if same := must[limit.Tenant](t)(s.SetTenantPlan(t.Context(), "ann", "acme", "paid")); same.Revision != set.Revision || heads(t, s) != h {
		t.Errorf("setting the same plan moved %+v to %+v", h, heads(t, s))
	}
	_, err = s.SetTenantPlan(t.Context(), "ann", "acme", "gold")
	is(t, "setting a plan that is not there", err, policystore.ErrInvalid)
	_, err = s.SetTenantPlan(t.Context(), "ann", "nobody", "free")
	is(t, "setting nobody's plan", err, policystore.ErrNotFound)

	apply(t, s, `
plans:
  free: {}
  paid: {price: {monthly: 10.00 USD}}
  europe: {price: {monthly: 10.00 EUR}}
tenants: [{id: capped, plan: paid, spending_cap: {amount: 100.00 USD, at: stop}}, {id: uncapped, plan: paid, spending_cap: none}]
`)
	_, err = s.SetTenantPlan(t.Context(), "ann", "capped", "europe")
	is(t, "a plan whose charges the tenant's own cap would not count", err, policystore.ErrInvalid)
	must[limit.Tenant](t)(s.SetTenantPlan(t.Context(), "ann", "uncapped", "europe"))
	if got := one(t, s, "capped"); got.Plan != "paid" {
		t.Errorf("capped has the plan %s after what was refused, want paid", got.Plan)
	}
	const euros = `
plans:
  free: {}
  paid: {price: {monthly: 10.00 EUR}}
  europe: {price: {monthly: 10.00 EUR}}
`
	before := heads(t, s)
	_, err = s.Apply(t.Context(), "ann", parse(t, euros), 0, false)
	is(t, "a document that prices the tenant's plan in another currency than its own cap", err, policystore.ErrInvalid)
	if err == nil || !strings.Contains(err.Error(), "100.00 USD") || !strings.Contains(err.Error(), "(capped)") {
		t.Errorf("the refusal names neither the cap nor the tenant: %v", err)
	}
	_, err = s.SetShadow(t.Context(), "ann", parse(t, euros), false)
	is(t, "the same document as a shadow", err, policystore.ErrInvalid)
	if got := heads(t, s); got != before {
		t.Errorf("refusals moved %+v to %+v", before, got)
	}
	both := euros + "tenants: [{id: capped, plan: paid, spending_cap: {amount: 90.00 EUR, at: stop}}, {id: uncapped, plan: paid, spending_cap: none}]\n"
	if _, err := s.Apply(t.Context(), "ann", parse(t, both), 0, true); err != nil {
		t.Errorf("price and cap changed in one document: %v", err)
	}
	if _, err := s.SetShadow(t.Context(), "ann", parse(t, both), true); err != nil {
		t.Errorf("such a document as a shadow: %v", err)
	}
	must[limit.Tenant](t)(s.SetTenantPlan(t.Context(), "ann", "capped", "free")) // which charges nothing
	must[limit.Tenant](t)(s.SetTenantPlan(t.Context(), "ann", "uncapped", "free"))
	apply(t, s, plans)

	many := []string{"x", "acme/team", "acme", "x"}
	for i := range 1100 { // more than any statement's parameters should have to be
		many = append(many, fmt.Sprint("none", i))
	}
	got := must[[]limit.Tenant](t)(s.Tenants(t.Context(), many))
	if len(got) != len(many) || got[0].Exists || !got[1].Exists || got[1].Parent != "acme" || got[2].Plan != "paid" || got[3].ID != "x" {
		t.Errorf("tenants: %+v", got[:4])
	}
	if got := must[[]limit.Tenant](t)(s.Tenants(t.Context(), nil)); len(got) != 0 {
		t.Errorf("no tenants: %+v", got)
	}
}

// A document upserts the tenants it names; others stay, and so do those that it
// no longer names.
func testDocumentTenants(t *testing.T, s policystore.Store) {
	apply(t, s, plans+"tenants: [{id: acme, plan: free, limits: [{name: requests, rate: 7/hour}]}, {id: left, plan: free}]\n")
	must[limit.Tenant](t)(s.CreateTenant(t.Context(), "ann", "byhand", "free", "acme"))
	must[limit.Tenant](t)(s.SetTenantPlan(t.Context(), "ann", "left", "paid"))
	if got := one(t, s, "acme"); len(got.Overrides) != 1 || got.Overrides[0].Rate.Units != 7 || got.Overrides[0].Burst != 14 || got.Overrides[0].Meter != "requests" {
		t.Errorf("acme's overrides: %+v", got.Overrides)
	}
	a := apply(t, s, plans+"tenants: [{id: acme, plan: paid}, {id: new, plan: free, parent: acme}]\n")
	want := []string{
		"tenant acme: plan free → paid", "tenant acme: override of limit requests removed",
		"tenant new added, plan free", "tenant new: parent none → acme", "tenant left: no longer in the document; it stays as it is",
	}
	if !slices.Equal(a.Changes, want) {
		t.Errorf("changes:\n got %q\nwant %q", a.Changes, want)
	}
	for id, plan := range map[string]string{"acme": "paid", "new": "free", "byhand": "free", "left": "paid"} {
		if got := one(t, s, id); !got.Exists || got.Plan != plan || len(got.Overrides) != 0 {
			t.Errorf("%s: %+v, want plan %s without overrides", id, got, plan)
		}
	}
	// Applying the document again takes back changes made by hand.
	must[limit.Tenant](t)(s.SetTenantPlan(t.Context(), "ann", "acme", "free"))
	a = apply(t, s, plans+"tenants: [{id: acme, plan: paid}, {id: new, plan: free, parent: acme}]\n")
	if !a.Changed || !slices.Equal(a.Changes, []string{"tenant acme: plan free → paid"}) {
		t.Errorf("applied again: %+v", a)
	}
}

// Every change of a tenant's plan is kept with its time. A change of something else, or of nothing, is not.
func testSubscriptions(t *testing.T, s policystore.Store) {
	apply(t, s, plans+"tenants: [{id: acme, plan: free, billing: {zone: Asia/Kolkata}}]\n")
	must[limit.Tenant](t)(s.CreateTenant(t.Context(), "ann", "byhand", "free", "acme"))
	must[limit.Tenant](t)(s.SetTenantPlan(t.Context(), "ann", "acme", "paid"))
	must[limit.Tenant](t)(s.SetTenantPlan(t.Context(), "ann", "acme", "paid"))
	must[limit.Tenant](t)(s.SetSuspended(t.Context(), "ann", "acme", true))
	_, err := s.SetTenantPlan(t.Context(), "ann", "acme", "gold")
	is(t, "a plan that is not there", err, policystore.ErrInvalid)
	must[policystore.Applied](t)(s.Apply(t.Context(), "ann", parse(t, plans+"tenants: [{id: acme, plan: free}]\n"), 0, true)) // dry
	apply(t, s, plans+"tenants: [{id: acme, plan: free, billing: {period: anniversary}}, {id: byhand, plan: free}]\n")
	apply(t, s, plans+"tenants: [{id: acme, plan: free}]\n")
	for id, want := range map[string][]string{"acme": {"free", "paid", "free"}, "byhand": {"free"}} {
		got := must[terms.Subscriber](t)(s.Subscriber(t.Context(), id))
		if got.ID != id || got.Billing != (terms.Billing{}) || len(got.Subscriptions) != len(want) {
			t.Errorf("%s: %+v, want the plans %q, one after another", id, got, want)
			continue
		}
		for i, sub := range got.Subscriptions {
			last := i == len(want)-1
			if sub.Plan != want[i] || last != (sub.To == 0) || !last && sub.To != got.Subscriptions[i+1].From || time.Since(time.Unix(sub.From, 0)) > time.Hour {
				t.Errorf("%s: subscription %d is %+v, want %s from now on", id, i, sub, want[i])
			}
		}
	}
	_, err = s.Subscriber(t.Context(), "nobody")
	is(t, "a tenant that is not there", err, policystore.ErrNotFound)
}

// No document may leave a reference to something gone, and a refusal changes nothing.
func testReferences(t *testing.T, s policystore.Store) {
	apply(t, s, plans+"tenants: [{id: acme, plan: paid, limits: [{name: requests, burst: 5}]}]\n")
	for i := range 12 {
		must[limit.Tenant](t)(s.CreateTenant(t.Context(), "ann", fmt.Sprintf("t%02d", i), "paid", ""))
	}
	h := heads(t, s)
	_, err := s.Apply(t.Context(), "ann", parse(t, "plans: {free: {}}"), 0, false)
	is(t, "dropping the plan paid", err, policystore.ErrInvalid)
	if err == nil || !strings.Contains(err.Error(), "plan paid is gone") || !strings.Contains(err.Error(), "acme, t00, ") || !strings.Contains(err.Error(), "and more") {
		t.Errorf("the refusal does not list the tenants: %v", err)
	}
	// paid stays, but lacks the limit whose burst acme's override changes.
	_, err = s.Apply(t.Context(), "ann", parse(t, "plans: {paid: {limits: [{name: other, rate: 1/s}]}}"), 0, false)
	is(t, "a plan that an override does not fit", err, policystore.ErrInvalid)
	if err == nil || !strings.Contains(err.Error(), "acme") {
		t.Errorf("the refusal does not name acme: %v", err)
	}
	_, err = s.Apply(t.Context(), "ann", parse(t, "plans: {paid: {limits: [{name: other, rate: 1/s}]}}"), 0, true)
	is(t, "a dry run of it", err, policystore.ErrInvalid)
	if got := heads(t, s); got != h {
		t.Errorf("refusals moved %+v to %+v", h, got)
	}
	// With the tenants moved by the same document, the plan may go.
	text := "plans: {free: {}}\ntenants: [{id: acme, plan: free}"
	for i := range 12 {
		text += fmt.Sprintf(", {id: t%02d, plan: free}", i)
	}
	if a := apply(t, s, text+"]\n"); !slices.Contains(a.Changes, "plan paid removed") {
		t.Errorf("moving the tenants with the document: %+v", a)
	}
	// SetTenantPlan looks at overrides too.
	apply(t, s, "plans: {free: {}, paid: {limits: [{name: requests, rate: 1/s}]}}\ntenants: [{id: acme, plan: paid, limits: [{name: requests, burst: 5}]}]")
	_, err = s.SetTenantPlan(t.Context(), "ann", "acme", "free")
	is(t, "a plan that the tenant's override does not fit", err, policystore.ErrInvalid)
}

func testLevels(t *testing.T, s policystore.Store) {
	apply(t, s, plans+"tenants: [{id: root, plan: free}, {id: other, plan: free}]\n")
	parent := "root"
	for i := 2; i <= limit.MaxTenantLevels; i++ {
		id := fmt.Sprint("level", i)
		must[limit.Tenant](t)(s.CreateTenant(t.Context(), "ann", id, "free", parent))
		for tenant, want := range map[string]bool{parent: true, id: false} {
			if got := must[bool](t)(s.Parent(t.Context(), tenant)); got != want {
				t.Errorf("%s is a parent: %v, want %v", tenant, got, want)
			}
		}
		parent = id
	}
	_, err := s.CreateTenant(t.Context(), "ann", "below", "free", parent)
	is(t, "one level too many", err, policystore.ErrInvalid)
	if got := one(t, s, "below"); got.Exists {
		t.Errorf("the refusal made %+v", got)
	}
	_, err = s.Apply(t.Context(), "ann", parse(t, plans+"tenants: [{id: root, plan: free, parent: other}, {id: other, plan: free}]\n"), 0, false)
	is(t, "a document that moves a full chain down", err, policystore.ErrInvalid)
	if got := one(t, s, "root"); got.Parent != "" {
		t.Errorf("the refusal moved root below %s", got.Parent)
	}
}

// An override inherits from the plan in force. When that changes, the tenant has changed, and others have not.
func testOverridesFollow(t *testing.T, s policystore.Store) {
	tenants := "tenants: [{id: acme, plan: paid, limits: [{name: requests, rate: 5000/hour}]}, {id: plain, plan: paid}]\n"
	apply(t, s, plans+tenants)
	before := heads(t, s)
	apply(t, s, strings.Replace(plans, "burst: 2000", "burst: 3000", 1)+tenants)
	if got := one(t, s, "acme"); got.Overrides[0].Burst != 15000 || got.Overrides[0].Rate.Units != 5000 {
		t.Errorf("acme's override: %+v, want the plan's new proportion of burst to rate", got.Overrides[0])
	}
	changed, through, err := s.TenantChanges(t.Context(), before.Tenants, 100)
	if err != nil || len(changed) != 1 || changed[0].ID != "acme" || through <= before.Tenants {
		t.Errorf("changed: %+v through %d, %v; want acme alone", changed, through, err)
	}
	before = heads(t, s)
	apply(t, s, strings.Replace(plans, "burst: 2000", "burst: 3000", 1)+"slot: 1m\n"+tenants)
	if got := heads(t, s); got.Tenants != before.Tenants {
		t.Errorf("a version that changes no override moved tenants from %d to %d", before.Tenants, got.Tenants)
	}
}

func testTenantChanges(t *testing.T, s policystore.Store) {
	apply(t, s, plans)
	for i := range 5 {
		must[limit.Tenant](t)(s.CreateTenant(t.Context(), "ann", fmt.Sprint("t", i), "free", ""))
	}
	must[limit.Tenant](t)(s.SetTenantPlan(t.Context(), "ann", "t1", "paid"))
	var ids []string
	after := int64(0)
	for range 10 {
		page, through, err := s.TenantChanges(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range page {
			if x.Revision <= after || x.Revision > through {
				t.Errorf("%s has revision %d in changes %d to %d", x.ID, x.Revision, after, through)
			}
			ids = append(ids, x.ID+"="+x.Plan)
		}
		if through == after {
			break
		}
		after = through
	}
	if got, want := strings.Join(ids, " "), "t0=free t2=free t3=free t4=free t1=paid"; got != want {
		t.Errorf("changes: %s, want %s: each once, oldest first", got, want)
	}
	if h := heads(t, s); h.Tenants != after {
		t.Errorf("complete through %d, heads say %d", after, h.Tenants)
	}
}

func testTenantPages(t *testing.T, s policystore.Store) {
	apply(t, s, plans)
	// Bytes decide the order, not a language: capitals first.
	for _, id := range []string{"b", "B", "a/1", "a-1", "a", "c"} {
		must[limit.Tenant](t)(s.CreateTenant(t.Context(), "ann", id, "free", ""))
	}
	var ids []string
	after := ""
	for {
		page := must[[]limit.Tenant](t)(s.TenantPage(t.Context(), after, 4))
		for _, x := range page {
			ids = append(ids, x.ID)
		}
		if len(page) < 4 {
			break
		}
		after = page[len(page)-1].ID
	}
	if got, want := strings.Join(ids, " "), "B a a-1 a/1 b c"; got != want {
		t.Errorf("pages: %s, want %s", got, want)
	}
}

// A caller that has gone changes nothing, and gets its own context's error.
func testEnded(t *testing.T, s policystore.Store) {
	apply(t, s, plans)
	ctx, end := context.WithCancel(t.Context())
	end()
	_, err := s.CreateTenant(ctx, "ann", "acme", "free", "")
	is(t, "a change whose caller has gone", err, context.Canceled)
	is(t, "a change whose caller has gone", err, policystore.ErrUnavailable)
	if got := one(t, s, "acme"); got.Exists {
		t.Errorf("it made %+v", got)
	}
}
