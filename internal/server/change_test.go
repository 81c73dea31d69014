package server_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// A limit changes under agents that hold leases of it: from the moment that a smaller one is
// in force no more than its burst is admitted, though they held far more of the old one; a
// larger one is there within a second, for a bucket that was exhausted for an
// hour; and a rollback is a change like any other.
func TestChangeUnderLeases(t *testing.T) {
	const text = `
plans:
  p:
    limits:
      - {name: requests, rate: 10/hour, burst: BURST, meter: requests}
default_plan: p
`
	inWorld(t, noon, strings.Replace(text, "BURST", "2000", 1), func(t *testing.T, w *world) {
		admin := w.admin()
		var gateways []*client.Client
		for i := range 5 {
			gateways = append(gateways, w.gateway(fmt.Sprint("gw-", i)))
		}
		within := func(version int64) {
			t.Helper()
			for began := time.Now(); ; time.Sleep(time.Millisecond) {
				behind := 0
				for _, c := range gateways {
					if c.PolicyVersion() != version {
						behind++
					}
				}
				if behind == 0 {
					synctest.Wait() // the version is there an instant before all buckets go by it
					return
				}
				if time.Since(began) > time.Second {
					t.Fatalf("version %d is not in force within a second: %d gateways have another", version, behind)
				}
			}
		}
		apply := func(burst string) int64 {
			t.Helper()
			resp, err := admin.ApplyPolicy(t.Context(), &quotav1.ApplyPolicyRequest{Document: strings.Replace(text, "BURST", burst, 1)})
			if err != nil {
				t.Fatal(err)
			}
			return resp.Change.Version
		}
		if got := allow(20, acme(), gateways...); got != 100 {
			t.Fatalf("admitted %d of 100", got)
		}
		within(1)
		within(apply("50"))
		// ε is 5 %. Of 2000 units 100 were used, of 50 none are left but what is leased.
		if got := allow(200, acme(), gateways...); got > 52 {
			t.Errorf("admitted %d after the limit fell to 50", got)
		}
		v := apply("3000")
		within(v)
		deadline := time.Now().Add(time.Second)
		for _, c := range gateways {
			for allow(1, acme(), c) == 0 {
				if time.Now().After(deadline) {
					t.Fatal("the larger limit is not in force within a second")
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
		if got := allow(100, acme(), gateways...); got < 450 {
			t.Errorf("admitted %d of 500 after the limit rose to 3000", got)
		}
		resp, err := admin.RollbackPolicy(t.Context(), &quotav1.RollbackPolicyRequest{Version: v - 1})
		if err != nil {
			t.Fatal(err)
		}
		within(resp.Change.Version)
		if got := allow(200, acme(), gateways...); got > 52 {
			t.Errorf("admitted %d after the limit was rolled back to 50", got)
		}
		w.shut(gateways...)
	})
}
