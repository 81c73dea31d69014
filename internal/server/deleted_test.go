package server_test

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// A customer leaves in the middle of a month: within a second of tenant delete the gateways of every server deny it,
// what they had admitted until then is on its last statement, which close-due closes when the month has ended, and
// there is none after it.
func TestADeletedTenantIsDeniedAndBilledOnceMore(t *testing.T) {
	const text = `
plans:
  paid:
    limits: [{name: calls, rate: 1000/second, burst: 1000000, meter: calls}]
    price: {monthly: 31.00 USD, meters: {calls: {unit: 0.10}}}
`
	inWorld(t, time.Date(2027, 1, 31, 23, 40, 0, 0, time.UTC), text, func(t *testing.T, w *world) {
		admin := w.admin()
		if _, err := admin.CreateTenant(t.Context(), &quotav1.CreateTenantRequest{Id: "acme", Plan: "paid"}); err != nil {
			t.Fatal(err)
		}
		here := w.gateway("here")
		if allow(1, acme(), here) != 1 {
			t.Fatal("the first request is denied")
		}
		defer w.another()()
		there := w.gateway("there")
		units := 1 + allow(50, acme(), here, there)
		if units < 51 {
			t.Fatalf("%d units were admitted before", units)
		}
		if _, err := admin.DeleteTenant(t.Context(), &quotav1.DeleteTenantRequest{Id: "acme"}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*client.Client{here, there} {
			for began := time.Now(); ; time.Sleep(time.Millisecond) {
				d := c.Allow(t.Context(), acme()...)
				if d.Allowed {
					units++
				} else if d.Reason == client.ReasonSuspended {
					break
				}
				if time.Since(began) > time.Second {
					t.Fatalf("a second after: allowed %v, %v", d.Allowed, d.Reason)
				}
			}
		}
		time.Sleep(5 * time.Second)
		if got := allow(10, acme(), here, there); got != 0 {
			t.Errorf("%d requests are admitted later", got)
		}

		time.Sleep(30 * time.Minute) // February has begun, and the gateways are alive
		statements := quotav1.NewStatementServiceClient(w.dial())
		due, err := statements.CloseDue(t.Context(), &quotav1.CloseDueRequest{})
		if err != nil || len(due.Closed) != 1 || len(due.Refused) != 0 || due.Closed[0].Tenant != "acme" || due.Closed[0].Period != "2027-01" {
			t.Fatalf("due: %v, %v", due, err)
		}
		last, err := statements.GetStatement(t.Context(), &quotav1.GetStatementRequest{Tenant: "acme", Period: "2027-01"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := billing.Decode([]byte(last.Statement.Document), last.Statement.Digest)
		if err != nil {
			t.Fatal(err)
		}
		billed := int64(0)
		for _, term := range s.Terms {
			for _, u := range term.Used {
				billed += u.Admitted
			}
		}
		if billed != units {
			t.Errorf("%d units are billed of %d admitted", billed, units)
		}
		if again, err := statements.CloseDue(t.Context(), &quotav1.CloseDueRequest{DryRun: true}); err != nil || len(again.Closed)+len(again.Refused) != 0 {
			t.Errorf("due again: %v, %v", again, err)
		}
		w.shut(here, there)
	})
}
