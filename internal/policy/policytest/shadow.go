package policytest

import (
	"slices"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// A shadow is a version of its own number that is never in force. The policy in force and the tenants stay as they are
// until it is promoted.
func testShadow(t *testing.T, s policystore.Store) {
	ctx := t.Context()
	_, err := s.SetShadow(ctx, "ann", parse(t, plans), false)
	is(t, "a shadow before the first policy", err, policystore.ErrInvalid)
	_, err = s.PromoteShadow(ctx, "ann", 0)
	is(t, "promoting none", err, policystore.ErrNotFound)
	apply(t, s, plans+"tenants: [{id: acme, plan: paid, limits: [{name: requests, rate: 7/hour}]}]\n")
	if was, err := s.ClearShadow(ctx, "ann"); was != 0 || err != nil {
		t.Errorf("clearing none: %d, %v", was, err)
	}
	text := strings.Replace(plans, "rate: 100/hour", "rate: 50/hour", 1) + "tenants: [{id: new, plan: free}]\n"
	want := policystore.Applied{Version: 0, Changed: true, Changes: []string{"plan free: limit requests: rate 100/hour → 50/hour"}}
	if got := must[policystore.Applied](t)(s.SetShadow(ctx, "ann", parse(t, text), true)); got.Version != 0 || !got.Changed || !slices.Equal(got.Changes, want.Changes) {
		t.Errorf("dry run: %+v, want %+v", got, want)
	}
	if h := heads(t, s); h.Shadow != 0 {
		t.Errorf("a dry run moved %+v", h)
	}
	got := must[policystore.Applied](t)(s.SetShadow(ctx, "ann", parse(t, text), false))
	if got.Version != 2 || !got.Changed || !slices.Equal(got.Changes, want.Changes) {
		t.Errorf("set: %+v, want version 2 and %q", got, want.Changes)
	}
	if h := heads(t, s); h.Version != 1 || h.Shadow != 2 {
		t.Errorf("heads: %+v, want version 1 in force and 2 tried", h)
	}
	if again := must[policystore.Applied](t)(s.SetShadow(ctx, "ann", parse(t, "# again\n"+text), false)); again.Changed || again.Version != 2 {
		t.Errorf("the same again: %+v", again)
	}
	if same := must[policystore.Applied](t)(s.SetShadow(ctx, "ann", parse(t, plans), false)); same.Changed || heads(t, s).Shadow != 2 {
		t.Errorf("what is in force, as a shadow: %+v", same)
	}
	if got := one(t, s, "new"); got.Exists {
		t.Errorf("the shadow made %+v", got)
	}
	if v := must[policystore.Version](t)(s.Version(ctx, 0)); v.Number != 1 || v.Shadow {
		t.Errorf("in force: %+v, want version 1", v)
	}
	if v := must[policystore.Version](t)(s.Version(ctx, 2)); v.Text != text || !v.Shadow {
		t.Errorf("version 2: %+v, want the shadow's document", v)
	}
	// An override keeps following the plan in force, not the shadow's.
	if got := one(t, s, "acme"); got.Overrides[0].Burst != 14 {
		t.Errorf("acme's override: %+v", got.Overrides[0])
	}
	_, err = s.SetShadow(ctx, "ann", parse(t, "plans: {free: {}}"), false)
	is(t, "a shadow without a plan that a tenant has", err, policystore.ErrInvalid)
	_, err = s.SetShadow(ctx, "ann", parse(t, "plans: {free: {}, paid: {limits: [{name: requests, algorithm: concurrency, slots: 5}]}}"), false)
	is(t, "a shadow that an override does not fit", err, policystore.ErrInvalid)

	// A version in force gets a number beyond the shadow's, and the trial goes on.
	if a := apply(t, s, plans+"slot: 1m\n"); a.Version != 3 {
		t.Errorf("applied version %d, want 3", a.Version)
	}
	if h := heads(t, s); h.Version != 3 || h.Shadow != 2 {
		t.Errorf("heads: %+v, want version 3 in force and 2 tried", h)
	}
	_, err = s.PromoteShadow(ctx, "bob", 9)
	is(t, "promoting another version", err, policystore.ErrConflict)
	if a := must[policystore.Applied](t)(s.PromoteShadow(ctx, "bob", 2)); a.Version != 4 || !a.Changed || !slices.Contains(a.Changes, "tenant new added, plan free") {
		t.Errorf("promoted: %+v, want version 4 with its tenants", a)
	}
	if h := heads(t, s); h.Version != 4 || h.Shadow != 0 {
		t.Errorf("heads: %+v, want version 4 in force and none tried", h)
	}
	if v := must[policystore.Version](t)(s.Version(ctx, 0)); v.Text != text || v.Author != "bob" || v.Shadow {
		t.Errorf("in force: %+v", v)
	}
	if a := must[policystore.Applied](t)(s.SetShadow(ctx, "ann", parse(t, plans), false)); a.Version != 5 {
		t.Errorf("the next shadow: %+v, want version 5", a)
	}
	if was := must[int64](t)(s.ClearShadow(ctx, "cy")); was != 5 || heads(t, s).Shadow != 0 || heads(t, s).Version != 4 {
		t.Errorf("cleared %d, heads %+v", was, heads(t, s))
	}
	if got := must[[]int64](t)(s.Shadows(ctx)); !slices.Equal(got, []int64{2, 5}) {
		t.Errorf("shadows: %v, want 2 and 5", got)
	}
	var log []string
	for _, r := range must[[]policystore.AuditRow](t)(s.Audit(ctx, policystore.AuditQuery{N: 100})) {
		log = append(log, r.Actor+" "+r.Action+" "+r.Object)
	}
	if got, want := strings.Join(log, ", "), "cy policy.shadow-clear 5, ann policy.shadow 5, bob policy.shadow-clear 2, bob policy.promote 4, "+
		"bob tenant.apply new, ann policy.apply 3, ann policy.shadow 2, ann policy.apply 1, ann tenant.apply acme"; got != want {
		t.Errorf("audit:\n got %s\nwant %s", got, want)
	}
}

func testSuspended(t *testing.T, s policystore.Store) {
	ctx := t.Context()
	apply(t, s, plans+"tenants: [{id: acme, plan: paid, limits: [{name: requests, rate: 7/hour}]}]\n")
	before := one(t, s, "acme")
	got := must[limit.Tenant](t)(s.SetSuspended(ctx, "ann", "acme", true))
	if !got.Suspended || got.Revision <= before.Revision || len(got.Overrides) != 1 || !one(t, s, "acme").Suspended {
		t.Errorf("suspended: %+v", got)
	}
	changed, _, err := s.TenantChanges(ctx, before.Revision, 10)
	if err != nil || len(changed) != 1 || !changed[0].Suspended {
		t.Errorf("changes: %+v, %v; want acme, suspended", changed, err)
	}
	if again := must[limit.Tenant](t)(s.SetSuspended(ctx, "ann", "acme", true)); again.Revision != got.Revision {
		t.Errorf("suspended again: %+v", again)
	}
	// A document does not mention suspension, so applying it changes none.
	apply(t, s, plans+"tenants: [{id: acme, plan: free}]\n")
	if !one(t, s, "acme").Suspended {
		t.Error("applying a document let acme go on")
	}
	if got := must[limit.Tenant](t)(s.SetSuspended(ctx, "bob", "acme", false)); got.Suspended || one(t, s, "acme").Suspended {
		t.Errorf("let go on: %+v", got)
	}
	_, err = s.SetSuspended(ctx, "ann", "nobody", true)
	is(t, "suspending nobody", err, policystore.ErrNotFound)
	rows := must[[]policystore.AuditRow](t)(s.Audit(ctx, policystore.AuditQuery{N: 1}))
	if r := rows[0]; r.Actor != "bob" || r.Action != "tenant.resume" || r.Object != "acme" || r.Before != `{"plan":"free","suspended":true}` || r.After != `{"plan":"free"}` {
		t.Errorf("audit: %+v", r)
	}
}

// Switches that were set elsewhere come with a revision: the highest holds, whatever
// the order they come in.
func testSwitchRevisions(t *testing.T, s policystore.Store) {
	ctx := t.Context()
	set := func(mode limit.Mode, revision int64) (limit.Switches, error) {
		return s.SetSwitches(ctx, "ann", limit.Switches{Mode: mode, Revision: revision})
	}
	must[limit.Switches](t)(set(limit.ModeAllowAll, 1000))
	_, err := set(limit.ModeNormal, 999)
	is(t, "older switches", err, policystore.ErrConflict)
	_, err = set(limit.ModeNormal, 1000)
	is(t, "other switches of the same revision", err, policystore.ErrConflict)
	if got := must[limit.Switches](t)(s.Switches(ctx)); got.Mode != limit.ModeAllowAll || got.Revision != 1000 || heads(t, s).Switches != 1000 {
		t.Errorf("stored: %+v, heads %+v; want revision 1000", got, heads(t, s))
	}
	// The same switches under a higher revision move it, so that nothing below it comes later.
	if got := must[limit.Switches](t)(set(limit.ModeAllowAll, 2000)); got.Revision != 2000 || heads(t, s).Switches != 2000 {
		t.Errorf("the same, newer: %+v", got)
	}
	if got := must[limit.Switches](t)(set(limit.ModeNormal, 0)); got.Revision != 2001 || heads(t, s).Switches != 2001 {
		t.Errorf("the next: %+v, want revision 2001", got)
	}
}
