package policytest

import (
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// A closed tenant is denied for good and changes no more. Nobody gets its id, and the books keep it.
func testClosedTenant(t *testing.T, s policystore.Store) {
	ctx := t.Context()
	named := plans + "tenants: [{id: acme, plan: paid, limits: [{name: requests, rate: 7/hour}]}]\n"
	apply(t, s, named)
	must[limit.Tenant](t)(s.CreateTenant(ctx, "ann", "acme/web", "paid", "acme"))
	must[limit.Tenant](t)(s.SchedulePlan(ctx, "ann", "acme/web", "free", time.Now().Add(time.Hour)))
	refused := func(what string, err error, want error, says string) {
		t.Helper()
		if is(t, what, err, want); err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", what, err, says)
		}
	}
	_, err := s.CloseTenant(ctx, "ann", "nobody")
	refused("nobody", err, policystore.ErrNotFound, "nobody")
	_, err = s.CloseTenant(ctx, "ann", "acme")
	refused("one that others are under", err, policystore.ErrInvalid, "acme/web")

	before := one(t, s, "acme/web")
	got := must[limit.Tenant](t)(s.CloseTenant(ctx, "ann", "acme/web"))
	if !got.Closed || !got.Suspended || !got.Exists || got.Revision <= before.Revision || !one(t, s, "acme/web").Closed {
		t.Errorf("closed: %+v", got)
	}
	changed, _, err := s.TenantChanges(ctx, before.Revision, 10)
	if err != nil || len(changed) != 1 || !changed[0].Suspended {
		t.Errorf("told: %+v, %v", changed, err)
	}
	if again := must[limit.Tenant](t)(s.CloseTenant(ctx, "bob", "acme/web")); again.Revision != got.Revision {
		t.Errorf("closed again: %+v", again)
	}
	sub := must[terms.Subscriber](t)(s.Subscriber(ctx, "acme/web"))
	if n := len(sub.Subscriptions); n != 2 || sub.Subscriptions[0].Plan != "paid" || sub.Ended() != sub.Subscriptions[1].From || sub.Ended() == 0 {
		t.Errorf("subscriptions: %+v", sub)
	}
	if waiting := must[[]terms.PlanChange](t)(s.PlanChanges(ctx, "acme/web")); len(waiting) != 0 {
		t.Errorf("plan changes wait: %+v", waiting)
	}
	_, err = s.CloseTenant(ctx, "ann", "acme")
	refused("one that the document names", err, policystore.ErrInvalid, "policy version 1 names tenant acme")

	_, err = s.CreateTenant(ctx, "ann", "acme/web", "free", "")
	refused("its id again", err, policystore.ErrExists, "was closed at")
	_, err = s.CreateTenant(ctx, "ann", "below", "free", "acme/web")
	refused("one below it", err, policystore.ErrInvalid, "was closed at")
	_, err = s.SetTenantPlan(ctx, "ann", "acme/web", "free")
	refused("another plan", err, policystore.ErrInvalid, "was closed at")
	_, err = s.SchedulePlan(ctx, "ann", "acme/web", "free", time.Now().Add(time.Hour))
	refused("another plan later", err, policystore.ErrInvalid, "was closed at")
	_, err = s.SetSuspended(ctx, "ann", "acme/web", false)
	refused("going on", err, policystore.ErrInvalid, "was closed at")
	for _, text := range []string{"tenants: [{id: acme/web, plan: free}]\n", "tenants: [{id: new, plan: free, parent: acme/web}]\n"} {
		doc, err := policy.Parse("f", []byte(plans+text))
		if err != nil {
			continue // a document's parents are of the document
		}
		_, err = s.Apply(ctx, "ann", doc, 0, false)
		refused("a document with it", err, policystore.ErrInvalid, "take it out of the document")
	}
	rows := must[[]policystore.AuditRow](t)(s.Audit(ctx, policystore.AuditQuery{N: 1, Action: "tenant.delete"}))
	if r := rows[0]; r.Actor != "ann" || r.Object != "acme/web" || !strings.Contains(r.After, `"closed":`) || strings.Contains(r.Before, "closed") {
		t.Errorf("audit: %+v", r)
	}

	// Out of the document, the parent can be closed too; its plan may then leave the document.
	apply(t, s, plans)
	must[limit.Tenant](t)(s.CloseTenant(ctx, "ann", "acme"))
	apply(t, s, "default_plan: free\nplans:\n  free: {limits: [{name: requests, rate: 100/hour}]}\n")
	_, err = s.Rollback(ctx, "ann", 1)
	refused("a document from before", err, policystore.ErrInvalid, "acme was closed at")
}
