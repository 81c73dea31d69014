package boot_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// agents are clients of a server, which share a tenant's bucket.
type agents struct {
	t       testing.TB
	clients []*client.Client
}

func (n *node) agents(count int) *agents {
	n.t.Helper()
	a := &agents{t: n.t}
	for i := range count {
		c, err := client.Dial(n.t.Context(), n.GRPCAddr(), client.WithAgent(fmt.Sprint("gw-", i)))
		if err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { _ = c.Close(n.t.Context()) })
		a.clients = append(a.clients, c)
	}
	return a
}

// spend has every agent ask for so many units, one at a time and in turn.
func (a *agents) spend(each int) (admitted int64) {
	for range each {
		for _, c := range a.clients {
			if c.Allow(a.t.Context(), client.Attribute{Name: client.AttrTenant, Value: "acme"}).Allowed {
				admitted++
			}
		}
	}
	return admitted
}

// within waits a second, which is the promise, until all agents have the version.
func (a *agents) within(version int64) {
	a.t.Helper()
	deadline := time.Now().Add(time.Second)
	for _, c := range a.clients {
		for c.PolicyVersion() != version {
			if time.Now().After(deadline) {
				a.t.Fatalf("version %d is not in force within a second: an agent has %d", version, c.PolicyVersion())
			}
			time.Sleep(time.Millisecond)
		}
	}
}

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
tenants:
  - {id: acme, plan: p}
`
	n := start(t, embedded(t, strings.Replace(text, "BURST", "2000", 1)))
	a := n.agents(5)
	apply := func(burst string) int64 {
		t.Helper()
		resp, err := n.admin().ApplyPolicy(t.Context(), &quotav1.ApplyPolicyRequest{Document: strings.Replace(text, "BURST", burst, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Version
	}
	if got := a.spend(20); got != 100 {
		t.Fatalf("admitted %d of 100", got)
	}
	a.within(1)
	a.within(apply("50"))
	// ε is 5 %. Of 2000 units 100 were used, of 50 none are left but what is leased.
	if got := a.spend(200); got > 52 {
		t.Errorf("admitted %d after the limit fell to 50", got)
	}
	v := apply("3000")
	a.within(v)
	deadline := time.Now().Add(time.Second)
	for a.spend(1) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the larger limit is not in force within a second")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got := a.spend(100); got < 450 {
		t.Errorf("admitted %d of 500 after the limit rose to 3000", got)
	}
	resp, err := n.admin().RollbackPolicy(t.Context(), &quotav1.RollbackPolicyRequest{Version: v - 1})
	if err != nil {
		t.Fatal(err)
	}
	a.within(resp.Version)
	if got := a.spend(200); got > 52 {
		t.Errorf("admitted %d after the limit was rolled back to 50", got)
	}
}
