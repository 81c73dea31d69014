package boot_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// One renewal of a call that breaks a bound is refused by itself and told why; the others, of known and of unknown
// limits, are answered as ever, and so is the tenant asked for. A call that breaks a bound of its own is refused whole.
func TestAWrongRenewalHoldsBackNoOther(t *testing.T) {
	n := start(t, embedded(t, `
plans: {free: {limits: [{name: requests, by: [tenant], rate: 100/second}]}}
default_plan: free
`))
	renewal := func(tenant string, number int64) *quotav1.Renewal {
		return &quotav1.Renewal{Limit: "requests", Tenant: tenant, Number: number, Began: number, Waiting: 1, Largest: 1}
	}
	negative := renewal("acme", 7)
	negative.Admitted = -1
	req := &quotav1.RenewRequest{Agent: "gw-1", Epoch: 1, Tenants: []string{"initech"}, Renewals: []*quotav1.Renewal{
		renewal("acme", 5), negative, renewal("a b", 6), {Limit: "other", Tenant: "acme", Number: 1}, {}, renewal("umbrella", 1),
		{Limit: "requests", Tenant: "acme", Values: []string{"a\x1fb"}, Number: 1},
	}}
	resp, err := n.leases().Renew(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		status quotav1.Grant_Status
		number int64
		reason string
	}{
		{quotav1.Grant_STATUS_GRANTED, 5, ""},
		{quotav1.Grant_STATUS_UNKNOWN, 7, "admitted is -1; it must be 0 to"},
		{quotav1.Grant_STATUS_UNKNOWN, 6, `tenant is "a b"; it must be`},
		{quotav1.Grant_STATUS_UNKNOWN, 1, ""},
		{quotav1.Grant_STATUS_UNKNOWN, 0, "limit is"},
		{quotav1.Grant_STATUS_GRANTED, 1, ""},
		{quotav1.Grant_STATUS_UNKNOWN, 1, "values holds"},
	} {
		g := resp.Grants[i]
		if g.Status != want.status || g.Number != want.number || !strings.Contains(g.Reason, want.reason) || (want.reason == "") != (g.Reason == "") {
			t.Errorf("renewal %d: %v, want %v of number %d because %q", i, g, want.status, want.number, want.reason)
		}
		if granted := want.status == quotav1.Grant_STATUS_GRANTED; granted != (g.Tokens > 0) {
			t.Errorf("renewal %d has %d tokens", i, g.Tokens)
		}
	}
	if len(resp.Tenants) != 1 || resp.Tenants[0].Id != "initech" {
		t.Errorf("the tenant asked for: %v", resp.Tenants)
	}
	_, page := n.get("/metrics")
	for _, want := range []string{`status="INVALID"} 4`, `status="UNKNOWN"} 1`} { // of those that broke a bound, and of no limit
		if line := `quota_server_renewals_total{limit="",` + want; !strings.Contains(page, line) {
			t.Errorf("the metrics have no %s", line)
		}
	}
	req.Epoch = 0
	if _, err := n.leases().Renew(t.Context(), req); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an epoch of 0: %v, want the call refused", err)
	}
}
