package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/unraced"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// receiver is a webhook in the bubble: what it got, and how it answers.
type receiver struct {
	mu     sync.Mutex
	got    []string // webhook-id of each attempt, in order
	status int
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, req.Header.Get("Webhook-Id"))
	return &http.Response{StatusCode: r.status, Status: http.StatusText(r.status), Body: http.NoBody, Request: req}, nil
}

func (r *receiver) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// settledWithin is how long it takes at most from a request to what caps make of it: until
// it is reported (10 s), folded (10 s), looked at (2 s), and in force (1 s).
const settledWithin = 23 * time.Second

const cappedPolicy = `
webhooks:
  ops: {url: "https://hooks.example.com/", secret: {file: SECRET}}
alerts:
  - {name: spent, spending: cap, webhooks: [ops]}
plans:
  p:
    limits: [{name: requests, rate: 1000000/hour, burst: 1000000, meter: requests}]
    price: {monthly: 5.00 USD, meters: {requests: {unit: 0.10}}}
    spending_cap: {amount: AMOUNT USD, at: ACTION, webhooks: [ops]}
tenants: [{id: acme, plan: p}]
`

// A tenant that spends what it may is stopped on every gateway within the bound that the
// documentation states, for a reason of its own, and told of once; it goes on when its cap is raised, when a
// credit comes, and when the period turns. An operator's suspension is none of the cap's.
func TestSpendingCapStops(t *testing.T) {
	unraced.Only(t) // what meets in it meets in TestSpendingCapThrottles
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := func(amount, action string) string {
		return strings.NewReplacer("SECRET", secret, "AMOUNT", amount, "ACTION", action).Replace(cappedPolicy)
	}
	lateInMonth := time.Date(2026, 3, 31, 23, 45, 0, 0, time.UTC)
	inBothWorlds(t, lateInMonth, text("10.00", "stop"), func(t *testing.T, w *world) {
		hook := &receiver{status: http.StatusOK}
		w.webhooks = hook
		admin, statements, alerts := w.admin(), quotav1.NewStatementServiceClient(w.dial()), quotav1.NewAlertServiceClient(w.dial())
		a, b := w.gateway("gw-1"), w.gateway("gw-2")
		// until waits for the cap to be in force, or lifted, on the server, and then wants it of
		// each gateway within a second.
		until := func(what string, within time.Duration, capped bool) {
			t.Helper()
			for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
				tenant, err := admin.GetTenant(t.Context(), &quotav1.GetTenantRequest{Id: "acme"})
				if err != nil {
					t.Fatal(err)
				}
				if tenant.Tenant.Capped == capped {
					break
				}
				if time.Since(began) > within-time.Second {
					t.Fatalf("%s: not within %s: %v", what, within, tenant.GetTenant())
				}
			}
			time.Sleep(time.Second)
			for _, c := range []*client.Client{a, b} {
				if d := c.Allow(t.Context(), acme()...); d.Allowed == capped || capped && d.Reason != client.ReasonCapped {
					t.Fatalf("%s: allowed %t, %s", what, d.Allowed, d.Reason)
				}
			}
		}
		denied := func(what string, reason client.Reason) {
			t.Helper()
			time.Sleep(time.Second)
			if d := a.Allow(t.Context(), acme()...); d.Allowed || d.Reason != reason {
				t.Errorf("%s: allowed %t, %s", what, d.Allowed, d.Reason)
			}
		}
		if got := allow(45, acme(), a, b); got != 90 {
			t.Fatalf("admitted %d of 90", got)
		}
		time.Sleep(settledWithin)
		if got := allow(5, acme(), a, b); got != 10 {
			t.Errorf("below the cap: admitted %d of 10", got)
		}
		until("at the cap", settledWithin, true)
		if tenant, err := admin.GetTenant(t.Context(), &quotav1.GetTenantRequest{Id: "acme"}); err != nil || !tenant.Tenant.Suspended {
			t.Errorf("agents that do not know of caps: %v, %v", tenant.GetTenant(), err)
		}
		time.Sleep(2 * time.Minute) // nothing of it is told again
		list, err := alerts.ListAlerts(t.Context(), &quotav1.ListAlertsRequest{Forward: true})
		if err != nil {
			t.Fatal(err)
		}
		var got, ids []string
		for _, e := range list.Alerts {
			got = append(got, fmt.Sprintf("%s %s %s of %s %s", e.Alert, e.Threshold, e.Used, e.Of, e.Action))
			ids = append(ids, e.Id)
		}
		want := []string{"spent 50% 9.00 USD of 10.00 USD ", "spent 80% 9.00 USD of 10.00 USD ", "spent 100% 10.00 USD of 10.00 USD ", "spending_cap 100% 10.00 USD of 10.00 USD stop"}
		if !slices.Equal(got, want) || !slices.Equal(hook.ids(), ids) {
			t.Errorf("events %q, want %q; delivered %q of %q", got, want, hook.ids(), ids)
		}

		if _, err := statements.GiveCredit(t.Context(), &quotav1.GiveCreditRequest{Id: "c", Tenant: "acme", Amount: "1.00 USD"}); err != nil {
			t.Fatal(err)
		}
		until("with a credit", 4*time.Second, false)
		allow(5, acme(), a, b)
		until("when the credit is spent", settledWithin, true)
		w.apply(text("20.00", "stop"))
		until("with a higher cap", 4*time.Second, false)
		w.apply(text("2.00", "stop"))
		until("with a lower cap", 4*time.Second, true)
		if _, err := admin.SuspendTenant(t.Context(), &quotav1.SuspendTenantRequest{Id: "acme"}); err != nil {
			t.Fatal(err)
		}
		denied("suspended as well", client.ReasonSuspended)
		time.Sleep(time.Until(time.Date(2026, 4, 1, 0, 1, 0, 0, time.UTC)))
		denied("suspended in the next period", client.ReasonSuspended)
		if _, err := admin.ResumeTenant(t.Context(), &quotav1.ResumeTenantRequest{Id: "acme"}); err != nil {
			t.Fatal(err)
		}
		until("in the next period", time.Second, false)
		rows, err := w.policy.Audit(t.Context(), policystore.AuditQuery{N: 100, Actor: "system"})
		if err != nil {
			t.Fatal(err)
		}
		var did []string
		for _, r := range rows {
			did = append(did, r.Action+" "+r.Object)
		}
		slices.Reverse(did)
		if want := []string{"tenant.cap acme", "tenant.uncap acme", "tenant.cap acme", "tenant.uncap acme", "tenant.cap acme", "tenant.uncap acme"}; !slices.Equal(did, want) {
			t.Errorf("audited %q, want %q", did, want)
		}
		w.shut(a, b)
	})
}

// A cap that throttles adds one limit, which denials name; the rest is admitted.
func TestSpendingCapThrottles(t *testing.T) {
	text := strings.NewReplacer("SECRET", "/nowhere", "AMOUNT", "2.00", "ACTION", "throttle to 1/second").Replace(cappedPolicy)
	inBothWorlds(t, time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC), text, func(t *testing.T, w *world) {
		a := w.gateway("gw-1")
		if got := allow(50, acme(), a); got != 50 {
			t.Fatalf("admitted %d of 50", got)
		}
		time.Sleep(settledWithin)
		got := int64(0)
		for range 600 { // a minute
			d := a.Allow(t.Context(), acme()...)
			if d.Allowed {
				got++
			} else if d.Limit() != terms.CapName || d.Reason != client.ReasonLimit {
				t.Fatalf("denied by %q, %s", d.Limit(), d.Reason)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if got < 50 || got > 65 {
			t.Errorf("admitted %d in a minute at 1/second", got)
		}
		w.shut(a)
	})
}
