package boot_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// scopedText has an organisation with teams below it, a tenant that is somebody else's, and a limit of the top level
// that tells tenants apart.
const scopedText = `
limits:
  - {name: everybody, rate: 100000/hour}
  - {name: each, by: [tenant], rate: 100000/hour}
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 100/hour, burst: 200, meter: requests}
      - {name: exports, by: [tenant], rate: 100/hour, burst: 200}
default_plan: free
tenants:
  - {id: org, plan: free}
  - {id: org/web, plan: free, parent: org}
  - {id: org/web/key, plan: free, parent: org/web}
  - {id: org/api, plan: free, parent: org}
  - {id: other, plan: free}
`

// scopedNode is a server with a policy of scopedText, and its admin's key.
func scopedNode(t *testing.T) *node {
	c := embedded(t, scopedText)
	c.BootstrapAdminKey = adminKey
	return start(t, c)
}

// with makes a key and returns the node as its bearer sees it.
func (n *node) with(req *quotav1.CreateKeyRequest) *node {
	n.t.Helper()
	resp, err := n.admin().CreateKey(n.t.Context(), req)
	if err != nil {
		n.t.Fatalf("create a key: %v", err)
	}
	as := *n
	as.key = resp.Secret
	return &as
}

// A key leases the buckets of its tenants, and of those above them, which their requests spend of too. Of other tenants
// it learns nothing, not even whether they exist.
func TestKeysLeaseForTheirTenantsOnly(t *testing.T) {
	n := scopedNode(t)
	for what, c := range map[string]struct {
		tenants []string
		subtree bool
		limits  []string
		want    map[string]string // by what is asked
	}{
		"a tenant by its id": {tenants: []string{"org/web"}, want: map[string]string{
			"org/web": "known", "org": "known", "org/web/key": "unknown", "org/api": "unknown", "other": "unknown", "nobody": "unknown",
			"requests org/web": "GRANTED", "requests org": "GRANTED", "requests org/web/key": "UNKNOWN", "requests other": "UNKNOWN", "requests nobody": "UNKNOWN",
			"each =org/web": "GRANTED", "each =other": "UNKNOWN", "each =org": "UNKNOWN", "everybody ": "GRANTED", "exports org/web": "GRANTED",
		}},
		"and those below it": {tenants: []string{"org/web"}, subtree: true, want: map[string]string{
			"org/web": "known", "org": "known", "org/web/key": "known", "org/api": "unknown", "other": "unknown",
			"requests org/web/key": "GRANTED", "requests org/api": "UNKNOWN", "each =org/web/key": "GRANTED", "each =org/api": "UNKNOWN",
		}},
		"tenants by how their ids begin": {tenants: []string{"org/web/*"}, want: map[string]string{
			"org/web/key": "known", "org/web": "known", "org": "known", "org/api": "unknown", "other": "unknown", "org/web/new": "none",
			"requests org/web/key": "GRANTED", "requests org": "GRANTED", "requests org/api": "UNKNOWN", "each =org/web": "UNKNOWN",
		}},
		"limits by their names": {limits: []string{"requests"}, want: map[string]string{
			"other": "known", "requests other": "GRANTED", "exports other": "UNKNOWN", "each =other": "UNKNOWN", "everybody ": "UNKNOWN",
		}},
		"everything": {want: map[string]string{
			"other": "known", "nobody": "none", "requests other": "GRANTED", "requests nobody": "GRANTED", "exports org": "GRANTED", "each =other": "GRANTED", "everybody ": "GRANTED",
		}},
	} {
		as := n.with(&quotav1.CreateKeyRequest{Role: "agent", Agent: "gw-1", Tenants: c.tenants, Subtree: c.subtree, Limits: c.limits})
		var asked, answers []string
		req := &quotav1.RenewRequest{Agent: "gw-1", Epoch: time.Now().UnixMicro()}
		for ask := range c.want {
			asked = append(asked, ask)
		}
		slices.Sort(asked)
		var renewals, tenants []string
		for _, ask := range asked {
			name, tenant, renewal := strings.Cut(ask, " ")
			if !renewal {
				tenants, req.Tenants = append(tenants, ask), append(req.Tenants, ask)
				continue
			}
			r := &quotav1.Renewal{Limit: name, Tenant: tenant, Number: 1, Began: 1, Waiting: 1}
			if value, ok := strings.CutPrefix(tenant, "="); ok {
				r.Tenant, r.Values = "", []string{value}
			}
			renewals, req.Renewals = append(renewals, ask), append(req.Renewals, r)
		}
		resp, err := as.leases().Renew(t.Context(), req)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got := map[string]string{}
		for i, ask := range renewals {
			got[ask] = strings.TrimPrefix(resp.Grants[i].Status.String(), "STATUS_")
		}
		for i, ask := range tenants {
			switch p := resp.Tenants[i]; {
			case p.Exists:
				got[ask] = "known"
			case len(c.tenants) > 0 && c.want[ask] == "none", len(c.tenants) == 0:
				got[ask] = "none"
			case p.Id == ask && p.Plan == "" && p.Parent == "" && p.Revision == 0 && !p.Suspended:
				got[ask] = "unknown"
			default:
				got[ask] = p.String()
			}
		}
		for _, ask := range asked {
			if got[ask] != c.want[ask] {
				answers = append(answers, fmt.Sprintf("%s: got %s, want %s", ask, got[ask], c.want[ask]))
			}
		}
		if len(answers) > 0 {
			t.Errorf("%s:\n%s", what, strings.Join(answers, "\n"))
		}
	}
}

// A tenant that joins another's tree brings its new ancestors into a key's reach within a moment.
func TestTenantsAboveFollowTheTree(t *testing.T) {
	n := scopedNode(t)
	as := n.with(&quotav1.CreateKeyRequest{Role: "agent", Agent: "gw-1", Tenants: []string{"late/*"}})
	exists := func(id string) bool {
		resp, err := as.leases().Renew(t.Context(), &quotav1.RenewRequest{Agent: "gw-1", Epoch: 1, Tenants: []string{id}})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Tenants[0].Exists
	}
	if exists("other") {
		t.Error("other is told of before anything of the key's is below it")
	}
	if _, err := n.admin().CreateTenant(t.Context(), &quotav1.CreateTenantRequest{Id: "late/1", Plan: "free", Parent: "other"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new tenant's parent is told of", func() bool { return exists("other") })
}

// What a key is not for is never billed: its rows go to quarantine with the reason, and the rest of the report settles.
func TestKeysSettleForTheirTenantsOnly(t *testing.T) {
	n := scopedNode(t)
	as := n.with(&quotav1.CreateKeyRequest{Role: "agent", Agent: "gw-1", Tenants: []string{"org/web"}, Subtree: true, Limits: []string{"requests"}})
	slot := time.Now().Truncate(5 * time.Minute).Unix()
	row := func(tenant, limit, meter string, units int64) ledger.Row {
		return ledger.Row{Slot: slot, Tenant: tenant, Limit: limit, Meter: meter, Version: 1, Admitted: units}
	}
	r := ledger.NewReport("gw-1", 1, 1, 0, []ledger.Row{
		row("org/web", "requests", "requests", 1), row("org/web/key", "requests", "requests", 2), row("org", "requests", "requests", 4),
		row("other", "requests", "requests", 8), row("nobody", "requests", "requests", 16), row("org/web", "exports", "", 32),
		{Slot: slot - 300, Tenant: "org", Limit: "requests", Version: 1, Denied: 7}, // what org's limit denied of org/web
	}, time.Now().UnixMilli(), false)
	resp, err := as.leases().Settle(t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{wire.ReportToProto(r)}})
	if err != nil || resp.Receipts[0].Status != quotav1.Receipt_STATUS_SETTLED {
		t.Fatalf("settle: got %v, %v, want SETTLED", resp, err)
	}
	usage, err := n.usage().GetUsage(t.Context(), &quotav1.GetUsageRequest{By: quotav1.GetUsageRequest_BY_LIMIT})
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, r := range usage.Rows {
		total += r.Admitted
	}
	if total != 3 {
		t.Errorf("%d units were billed, want the 3 of the key's tenants: %v", total, usage.Rows)
	}
	kept, err := quotav1.NewLedgerServiceClient(n.dial(n.key)).ListQuarantine(t.Context(), &quotav1.ListQuarantineRequest{})
	if err != nil || len(kept.Rows) != 4 {
		t.Fatalf("quarantine: got %v, %v, want 4 rows", kept, err)
	}
	for _, q := range kept.Rows {
		if !strings.Contains(q.Reason, "is not for") || strings.Contains(q.Reason, as.key) {
			t.Errorf("the reason is %q, want what the key is not for, and no secret", q.Reason)
		}
	}
}

// A key hears of its own tenants, of those above them, and of no others.
func TestKeysWatchTheirTenantsOnly(t *testing.T) {
	n := scopedNode(t)
	as := n.with(&quotav1.CreateKeyRequest{Role: "agent", Agent: "gw-1", Tenants: []string{"org/web"}})
	w := as.watch(&quotav1.WatchRequest{Agent: "gw-1", Epoch: 1})
	first := w.next("the first message", func(m *quotav1.WatchResponse) bool { return m.Policy != nil })
	for _, id := range []string{"other", "org/api", "org", "org/web"} {
		if _, err := n.admin().SuspendTenant(t.Context(), &quotav1.SuspendTenantRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
	}
	var heard []string
	w.next("the last change", func(m *quotav1.WatchResponse) bool {
		for _, tenant := range m.Tenants {
			heard = append(heard, tenant.Id)
		}
		return slices.Contains(heard, "org/web")
	})
	slices.Sort(heard)
	if heard = slices.Compact(heard); fmt.Sprint(heard) != "[org org/web]" {
		t.Errorf("heard of %v, want org and org/web", heard)
	}
	if _, err := n.admin().SetSwitches(t.Context(), &quotav1.SetSwitchesRequest{Switches: &quotav1.Switches{DeniedTenants: []string{"other", "org", "org/web"}}}); err != nil {
		t.Fatal(err)
	}
	switches := w.next("switches", func(m *quotav1.WatchResponse) bool {
		return m.Switches != nil && m.Switches.Revision > first.Switches.GetRevision()
	})
	if got := fmt.Sprint(switches.Switches.DeniedTenants); got != "[org org/web]" {
		t.Errorf("denied are %s, want org and org/web", got)
	}
}

// Keys of people may be for some tenants too: these answer about one of them, and nothing else but what is no tenant's.
func TestKeysReadTheirTenantsOnly(t *testing.T) {
	n := scopedNode(t)
	as := n.with(&quotav1.CreateKeyRequest{Role: "viewer", Tenants: []string{"org/web"}})
	tree := n.with(&quotav1.CreateKeyRequest{Role: "operator", Tenants: []string{"org/web"}, Subtree: true})
	for path, want := range map[string][2]int{
		"/v1/tenants/org/web":                          {200, 200},
		"/v1/tenants/org/web/key":                      {403, 200},
		"/v1/tenants/org":                              {403, 403},
		"/v1/tenants/nobody":                           {403, 403},
		"/v1/tenants":                                  {403, 403},
		"/v1/usage?tenant=org/web":                     {200, 200},
		"/v1/usage?tenant=other":                       {403, 403},
		"/v1/usage":                                    {403, 403},
		"/v1/usage/breakdown?tenant=org/web":           {200, 200},
		"/v1/usage/breakdown?tenant=org/web&subtree=1": {403, 200},
		"/v1/usage/breakdown":                          {403, 403},
		"/v1/usage/export?tenant=org/web":              {200, 200},
		"/v1/usage/export?tenant=other":                {403, 403},
		"/v1/statements?tenant=org/web":                {200, 200},
		"/v1/statements?tenant=other":                  {403, 403},
		"/v1/policy":                                   {403, 403},
		"/v1/plans":                                    {200, 200},
		"/v1/version":                                  {200, 200},
	} {
		for i, who := range []*node{as, tree} {
			if code, body := who.get(path); code != want[i] {
				t.Errorf("GET %s with key %d: got %d %s, want %d", path, i, code, body, want[i])
			}
		}
	}
	if code, body := tree.call("POST", "/v1/tenants/org/web/key:suspend", tree.key, "{}"); code != 200 {
		t.Errorf("an operator suspends its own tenant: got %d %s", code, body)
	}
	if code, body := tree.call("POST", "/v1/tenants/other:suspend", tree.key, "{}"); code != 403 {
		t.Errorf("an operator suspends another's tenant: got %d %s, want 403", code, body)
	}
	backfill := n.with(&quotav1.CreateKeyRequest{Role: "backfill", Tenants: []string{"org/web"}})
	rows := func(tenants ...string) *quotav1.BackfillRequest {
		req := &quotav1.BackfillRequest{IdempotencyKey: strings.Join(tenants, "+"), Reason: "test"}
		for _, tenant := range tenants {
			req.Rows = append(req.Rows, &quotav1.LedgerRow{SlotMs: time.Now().Truncate(5 * time.Minute).UnixMilli(), Tenant: tenant, Limit: "requests", Meter: "requests", PolicyVersion: 1, Admitted: 1})
		}
		return req
	}
	client := quotav1.NewLedgerServiceClient(n.dial(backfill.key))
	if _, err := client.Backfill(t.Context(), rows("org/web")); err != nil {
		t.Errorf("backfill of the key's tenant: %v", err)
	}
	if _, err := client.Backfill(t.Context(), rows("org/web", "other")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("backfill of another's: got %v, want PermissionDenied", err)
	}
	stream, err := quotav1.NewAlertServiceClient(n.dial(as.key)).WatchAlerts(t.Context(), &quotav1.WatchAlertsRequest{Tenant: "other"})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("watching another's alerts: got %v, want PermissionDenied", err)
	}
}

// An agent's key names its agent, and what goes with no role is refused by name.
func TestKeysThatAreRefused(t *testing.T) {
	n := scopedNode(t)
	for want, req := range map[string]*quotav1.CreateKeyRequest{
		"names its agent":   {Role: "agent"},
		`agent: "*" is not`: {Role: "agent", Agent: "*"},
		"agent is set":      {Role: "viewer", Agent: "gw-1"},
		"is for all":        {Role: "admin", Tenants: []string{"org"}},
		"limits are set":    {Role: "viewer", Limits: []string{"requests"}},
		"subtree is set":    {Role: "viewer", Subtree: true},
		`"a b" is not`:      {Role: "viewer", Tenants: []string{"a b"}},
		"ended at":          {Role: "viewer", ExpiresMs: 1},
	} {
		_, err := n.admin().CreateKey(t.Context(), req)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want InvalidArgument with %q", req, err, want)
		}
	}
	// A family of gateways may share a key.
	as := n.with(&quotav1.CreateKeyRequest{Role: "agent", Agent: "gw-*"})
	for agent, want := range map[string]codes.Code{"gw-1": codes.OK, "gw-2": codes.OK, "edge-1": codes.PermissionDenied} {
		if _, err := as.leases().Renew(t.Context(), &quotav1.RenewRequest{Agent: agent, Epoch: 1}); status.Code(err) != want {
			t.Errorf("renew for %s: got %v, want %s", agent, err, want)
		}
	}
}
