package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// What an operator tells one server is in force at the gateways of another that shares its stores within a second.
func TestAChangeIsEverywhereWithinASecond(t *testing.T) {
	const text = `
plans:
  p: {limits: [{name: calls, rate: 1000/second, burst: 1000000}]}
  none: {limits: [{name: calls, rate: 1/day, burst: 1}]}
default_plan: p
tenants: [{id: acme, plan: p}]
`
	inWorld(t, noon, text, func(t *testing.T, w *world) {
		admin := w.admin()
		here := w.gateway("here")
		if _, err := admin.ListPlans(t.Context(), &quotav1.ListPlansRequest{}); err != nil || allow(1, acme(), here) != 1 {
			t.Fatalf("the first server: %v", err)
		}
		defer w.another()()
		there := w.gateway("there")
		defer w.shut(here, there)
		decided := func(allowed bool, reason client.Reason) func(*client.Client) bool {
			return func(c *client.Client) bool {
				d := c.Allow(t.Context(), acme()...)
				return d.Allowed == allowed && d.Reason == reason
			}
		}
		version := func(v int64) func(*client.Client) bool {
			return func(c *client.Client) bool { return c.PolicyVersion() == v }
		}
		within := func(what string, is func(*client.Client) bool) {
			t.Helper()
			for began := time.Now(); !is(here) || !is(there); time.Sleep(time.Millisecond) {
				if time.Since(began) > time.Second {
					t.Fatalf("not within a second: %s", what)
				}
			}
		}
		must := func(_ any, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		within("the first decisions", decided(true, client.ReasonLimit))
		within("the policy", version(1))
		must(admin.ApplyPolicy(t.Context(), &quotav1.ApplyPolicyRequest{Document: strings.Replace(text, "1000/second", "1001/second", 1)}))
		within("the next policy", version(2))
		must(admin.SetSwitches(t.Context(), &quotav1.SetSwitchesRequest{Switches: &quotav1.Switches{DeniedTenants: []string{"acme"}}}))
		within("a tenant denied by the switch", decided(false, client.ReasonSwitch))
		must(admin.SetSwitches(t.Context(), &quotav1.SetSwitchesRequest{Switches: &quotav1.Switches{Mode: quotav1.Switches_MODE_ALLOW_ALL}}))
		within("all allowed by the switch", decided(true, client.ReasonSwitch))
		must(admin.SetSwitches(t.Context(), &quotav1.SetSwitchesRequest{Switches: &quotav1.Switches{}}))
		within("no switch", decided(true, client.ReasonLimit))
		must(admin.SuspendTenant(t.Context(), &quotav1.SuspendTenantRequest{Id: "acme"}))
		within("a tenant suspended", decided(false, client.ReasonSuspended))
		must(admin.ResumeTenant(t.Context(), &quotav1.ResumeTenantRequest{Id: "acme"}))
		within("a tenant that goes on", decided(true, client.ReasonLimit))
		must(admin.SetTenantPlan(t.Context(), &quotav1.SetTenantPlanRequest{Id: "acme", Plan: "none"}))
		within("a tenant on another plan", decided(false, client.ReasonLimit))
		must(admin.SetTenantPlan(t.Context(), &quotav1.SetTenantPlanRequest{Id: "acme", Plan: "p"}))
		within("a tenant on its plan again", decided(true, client.ReasonLimit))
		must(admin.SetTenantLimit(t.Context(), &quotav1.SetTenantLimitRequest{Id: "acme", Limit: "calls", Values: map[string]string{"rate": "1/day", "burst": "1"}}))
		within("a tenant with a limit of its own", decided(false, client.ReasonLimit))
		must(admin.UnsetTenantLimit(t.Context(), &quotav1.UnsetTenantLimitRequest{Id: "acme", Limit: "calls"}))
		within("a tenant with its plan's limit again", decided(true, client.ReasonLimit))
	})
}
