package doors

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/pkg/client"
)

// streams has a mapping that tells reports at a stream's end apart.
var streams = strings.Replace(hourly, "tenant: tenant}}", "tenant: tenant}, after: [used, late]}", 1) + `
  gone:
    limits: [{name: requests, by: [tenant], rate: 1/hour, burst: 30, meter: requests}]
  bare:
    limits:
      - {name: requests, by: [tenant], rate: 1/hour, burst: 30, meter: requests, deny: {user: uvil}}
      - {name: counted, by: [tenant], meter: other}
tenants:
  - {id: acme, plan: free}
  - {id: bare, plan: bare}
`

// What Envoy reports at a stream's end is booked whatever there is, and paid by what comes next; the ledger has it to the unit.
func TestEnvoyBooksWhatWasUsed(t *testing.T) {
	n := newEnvoyNode(t, streams)
	used := func(tenant string, units uint64) {
		t.Helper()
		n.want("a report", ok, edge(own(descriptor("tenant="+tenant, "used="), units)), ok)
	}
	used("acme", 25) // of a bucket that nobody has touched
	n.want("6 of the 5 left", over, hits(6, edge(descriptor("tenant=acme"))), over)
	n.want("5 of the 5 left", ok, hits(5, edge(descriptor("tenant=acme"))), ok)
	used("acme", 7)
	used("acme", 100_000)       // far above the burst
	used("acme", 2_500_000_001) // more than a request may cost
	n.want("a request while there is a debt", over, edge(descriptor("tenant=acme")), over)
	used("bare", 1)
	n.want("a report of a user that a list denies, beside what is asked", ok, edge(own(descriptor("tenant=bare", "user=uvil", "late=x"), 2), descriptor("tenant=bare")), ok, ok)
	n.want("nothing mapped", ok, edge(own(descriptor("used=x"), 5)), ok)
	used("acme", 16_000_000_001) // of which as much as may be is booked
	rows := n.end("acme", "bare")
	if got, want := rows[0]["requests"][0], int64(25+5+7+100_000+2_500_000_001+16_000_000_000); got != want {
		t.Errorf("the ledger has %d units of acme, want %d", got, want)
	}
	if got := rows[1]; got["requests"][0] != 4 || got["counted"][0] != 4 {
		t.Errorf("the ledger has %v of bare, want 4 of both limits", got)
	}
}

// Another agent finds the debt at the server.
func TestEnvoyReportsAreDebtsEverywhere(t *testing.T) {
	n := newEnvoyNode(t, streams)
	n.must(edge(own(descriptor("tenant=acme", "used=x"), 40)))
	deadline := time.Now().Add(30 * time.Second)
	for n.client.Stats().Renewals < 2 && time.Now().Before(deadline) { // the lease that pays, and what it paid
		time.Sleep(time.Millisecond)
	}
	other := newEnvoy(t, dialAt(t, n.server.GRPCAddr(), client.WithFirstWait(30*time.Second), client.WithMaxWait(30*time.Second)))
	if got := other.must(edge(descriptor("tenant=acme"))).GetOverallCode(); got != over {
		t.Errorf("another agent's request: got %v, want OVER_LIMIT", got)
	}
	if got := n.end("acme")[0]["requests"][0]; got != 40 {
		t.Errorf("the ledger has %d units, want 40", got)
	}
}

// Without a policy nothing can be booked, and the answer says so.
func TestEnvoyReportsWithoutAServer(t *testing.T) {
	c := dialAt(t, "127.0.0.1:1", client.WithFirstWait(0))
	if _, err := newEnvoy(t, c).ask(edge(own(descriptor("tenant=acme", "used=x"), 5))); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
	if err := c.Book(context.Background(), client.Request{Units: 5, Attributes: []client.Attribute{{Name: "tenant", Value: "acme"}}}); err == nil {
		t.Error("booked without a policy")
	}
}

// Hits are units of the cost that the mapping names: of reports here, and of what is asked.
func TestEnvoyHitsOfACost(t *testing.T) {
	n := newEnvoyNode(t, `gateways: {envoy: {domain: edge, descriptors: {tenant: tenant}, after: [used], hits: {used: tokens_out, tokens: tokens_in}}}`+llm)
	n.want("a request", ok, edge(descriptor("tenant=acme")), ok)
	n.want("5,001 tokens of 5,000", over, edge(own(descriptor("tenant=acme", "tokens="), 5001)), over)
	n.want("100 tokens", ok, edge(own(descriptor("tenant=acme", "tokens="), 100)), ok)
	n.want("a look at one token", ok, edge(own(descriptor("tenant=acme", "tokens="), 0)), ok)
	n.want("a report", ok, edge(own(descriptor("tenant=acme", "used="), 3000)), ok)
	n.want("while that is owed", over, edge(own(descriptor("tenant=acme", "tokens="), 1)), over)
	n.want("more than there may be", over, edge(own(descriptor("tenant=b", "tokens="), 1_000_000_001)), over)
	n.want("requests go on", ok, edge(descriptor("tenant=acme")), ok)
	got := n.end("acme")[0]
	if got["requests"][0] != 2 || got["tokens"][0] != 100+2*3000 {
		t.Errorf("the ledger has %v, want 2 requests and 6100 tokens", got)
	}
}

// A report is as many units of a limit as its weights make of it, above a billion too. What is more than any report may be is refused with
// a sentence, and logged.
func TestEnvoyReportsAreWeighed(t *testing.T) {
	n := newEnvoyNode(t, `
gateways: {envoy: {domain: edge, descriptors: {tenant: tenant}, after: [used], hits: tokens}}
costs: [tokens]
default_plan: free
plans:
  free:
    limits:
      - {name: spend, by: [tenant], rate: 5000/hour, burst: 5000, cost: {tokens: 4.5}, meter: spend}
      - {name: tokens, by: [tenant], cost: tokens, meter: tokens}
  dear:
    limits: [{name: spend, by: [tenant], rate: 5000/hour, burst: 5000, cost: {tokens: 1000.5}, meter: spend}]
tenants: [{id: acme, plan: free}, {id: dear, plan: dear}]
`)
	n.want("300,000,000 hits", ok, edge(own(descriptor("tenant=acme", "used="), 300_000_000)), ok)
	n.want("while they are owed", over, edge(descriptor("tenant=acme")), over)
	n.want("as many as a report may have", ok, edge(own(descriptor("tenant=acme", "used="), 16_000_000_000)), ok)
	n.want("and an odd one", ok, edge(own(descriptor("tenant=acme", "used="), 1_000_000_001)), ok)
	n.want("a billion of 1000", ok, edge(own(descriptor("tenant=dear", "used="), 999_500_249)), ok)
	_, err := n.ask(edge(own(descriptor("tenant=dear", "used="), 999_500_250)))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "limit spend makes more than 1000000000000 units") {
		t.Errorf("got %v, want a sentence", err)
	}
	got := n.end("acme", "dear")
	tokens := int64(300_000_000 + 16_000_000_000 + 1_000_000_001)
	if spend := (tokens*9 + 1) / 2; got[0]["tokens"][0] != tokens || got[0]["spend"][0] != spend {
		t.Errorf("the ledger has %v of acme, want %d tokens, and %d of spend", got[0], tokens, spend)
	}
	if spend := int64(999_999_999_125); got[1]["spend"][0] != spend {
		t.Errorf("the ledger has %v of dear, want %d of spend", got[1], spend)
	}
}
