package policytest

import (
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// override is a tenant's override as the API gives it: keys and values in turn.
func override(t *testing.T, name string, pairs ...string) policy.LimitSpec {
	t.Helper()
	values := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return must[policy.LimitSpec](t)(policy.ParseOverride(name, values))
}

// A tenant's override of one limit is set and taken back by itself, and the others stay. It must fit the plan, and it
// is logged. The same override again changes nothing.
func testTenantLimit(t *testing.T, s policystore.Store) {
	ctx := t.Context()
	change := must[policy.LimitChange](t)
	apply(t, s, "limits: [{name: every, rate: 1/s}]\n"+strings.TrimPrefix(plans, "\ndefault_plan: free\n")+"tenants: [{id: acme, plan: paid, limits: [{name: other, rate: 7/hour}]}]\n")
	before := one(t, s, "acme")
	set := change(s.SetTenantLimit(ctx, "ann", "acme", override(t, "requests", "rate", "5000/hour"), false))
	if got := strings.Join(set.Changes, "\n"); !set.Changed || !strings.Contains(got, "tenant acme: override of limit requests added: token_bucket 5000/hour, burst 10000") {
		t.Errorf("changes: %s", got)
	}
	if len(set.Warnings) != 1 || !strings.Contains(set.Warnings[0], "policy version 1 names tenant acme") {
		t.Errorf("warnings: %q", set.Warnings)
	}
	got := one(t, s, "acme")
	if len(got.Overrides) != 2 || got.Overrides[0].Name != "other" || got.Overrides[1].Burst != 10000 || got.Revision <= before.Revision || got.Revision != set.Tenant.Revision {
		t.Errorf("set: %+v", got)
	}
	if changed, _, err := s.TenantChanges(ctx, before.Revision, 10); err != nil || len(changed) != 1 {
		t.Errorf("told: %+v, %v", changed, err)
	}
	rows := must[[]policystore.AuditRow](t)(s.Audit(ctx, policystore.AuditQuery{N: 1}))
	if r := rows[0]; r.Actor != "ann" || r.Action != "tenant.set-limit" || r.Object != "acme" || strings.Contains(r.Before, "5000/hour") || !strings.Contains(r.After, "5000/hour") {
		t.Errorf("audit: %+v", r)
	}
	h := heads(t, s)
	if again := change(s.SetTenantLimit(ctx, "bob", "acme", override(t, "requests", "rate", "5000/hour"), false)); again.Changed || len(again.Changes) != 0 || heads(t, s) != h {
		t.Errorf("the same again: %+v", again)
	}
	// Keys that it leaves out are the plan's, not those of the override before it.
	set = change(s.SetTenantLimit(ctx, "ann", "acme", override(t, "requests", "lockout", "1m"), false))
	if o := set.Tenant.Overrides[1]; o.Rate.Units != 1000 || o.Lockout != time.Minute {
		t.Errorf("replaced: %+v", o)
	}

	h = heads(t, s)
	for _, c := range []struct {
		what, tenant string
		o            policy.LimitSpec
		add          bool
		want         error
		says         string
	}{
		{"nobody", "nobody", override(t, "requests", "rate", "1/s"), false, policystore.ErrNotFound, "nobody"},
		{"a limit that the plan lacks", "acme", override(t, "requets", "rate", "1/s"), false, policystore.ErrInvalid, "has no limit requets; it has requests"},
		{"one of the top level", "acme", override(t, "every", "rate", "1/s"), true, policystore.ErrInvalid, "cannot override"},
		{"a rate that is none", "acme", override(t, "requests", "rate", "0/minute"), false, policystore.ErrInvalid, "0 units would deny everything"},
		{"a key of another algorithm", "acme", override(t, "requests", "slots", "5"), false, policystore.ErrInvalid, "concurrency"},
		{"variants", "acme", override(t, "requests", "variants", "[{name: a, share: 5%, burst: 7}]"), false, policystore.ErrInvalid, "one tenant's"},
	} {
		_, err := s.SetTenantLimit(ctx, "ann", c.tenant, c.o, c.add)
		is(t, c.what, err, c.want)
		if err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.what, err, c.says)
		}
	}
	if heads(t, s) != h {
		t.Error("a refusal changed something")
	}
	added := change(s.SetTenantLimit(ctx, "ann", "acme", override(t, "exports", "rate", "3/hour"), true))
	if !added.Changed || len(added.Tenant.Overrides) != 3 {
		t.Errorf("added: %+v", added)
	}
	change(s.SetTenantLimit(ctx, "ann", "acme", override(t, "exports", "rate", "4/hour"), false)) // it is there now

	// From a time on: agents are told when it comes.
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	dated := change(s.SetTenantLimit(ctx, "ann", "acme", override(t, "requests", "rate", "9/hour", "from", soon), false))
	if !dated.Changed || len(dated.Changes) == 0 || len(dated.Tenant.Overrides) != 2 {
		t.Errorf("dated: %+v", dated)
	}

	for _, name := range []string{"requests", "exports"} {
		un := change(s.UnsetTenantLimit(ctx, "ann", "acme", name))
		if !un.Changed || len(un.Warnings) != 0 {
			t.Errorf("unset %s: %+v", name, un)
		}
	}
	if got := one(t, s, "acme"); len(got.Overrides) != 1 || got.Overrides[0].Name != "other" {
		t.Errorf("unset: %+v", got)
	}
	if rows := must[[]policystore.AuditRow](t)(s.Audit(ctx, policystore.AuditQuery{N: 1})); rows[0].Action != "tenant.unset-limit" {
		t.Errorf("audit: %+v", rows[0])
	}
	h = heads(t, s)
	if again := change(s.UnsetTenantLimit(ctx, "ann", "acme", "requests")); again.Changed || heads(t, s) != h {
		t.Errorf("unset again: %+v", again)
	}
	if un := change(s.UnsetTenantLimit(ctx, "ann", "acme", "other")); len(un.Warnings) != 1 { // the document says it
		t.Errorf("unset what the document says: %+v", un)
	}
	must[limit.Tenant](t)(s.CreateTenant(ctx, "ann", "gone", "paid", ""))
	must[limit.Tenant](t)(s.CloseTenant(ctx, "ann", "gone"))
	_, err := s.SetTenantLimit(ctx, "ann", "gone", override(t, "requests", "rate", "1/s"), false)
	is(t, "a closed tenant", err, policystore.ErrInvalid)
}
