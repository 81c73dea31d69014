package boot_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/server"
	"github.com/f4ee788f/quota/internal/server/boot"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// report is units of acme's requests, admitted now.
func report(agent string, seq, before, units int64) *quotav1.Report {
	now := time.Now()
	slot := now.Truncate(5 * time.Minute).Unix()
	row := ledger.Row{Slot: slot, Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Admitted: units}
	return wire.ReportToProto(ledger.NewReport(agent, 1, seq, before, []ledger.Row{row}, now.UnixMilli(), false))
}

// total is what the ledger has of acme.
func (n *node) total() int64 {
	n.t.Helper()
	resp, err := n.usage().GetUsage(n.t.Context(), &quotav1.GetUsageRequest{Tenant: "acme"})
	if err != nil {
		n.t.Fatalf("usage: %v", err)
	}
	var sum int64
	for _, r := range resp.Rows {
		sum += r.Admitted
	}
	return sum
}

// The path of a unit: leased, settled, read by gRPC and by REST.
func TestSettledUnitsAreUsage(t *testing.T) {
	n := start(t, embedded(t, policyText))
	ctx := t.Context()
	lease := n.leases()
	renewed, err := lease.Renew(ctx, &quotav1.RenewRequest{
		Agent: "gw-1", Epoch: 1, Tenants: []string{"acme", "stranger"},
		Renewals: []*quotav1.Renewal{
			{Limit: "requests", Tenant: "acme", Number: 1, Began: 1, Waiting: 1},
			{Limit: "nothing", Tenant: "acme", Number: 7, Began: 7},
			{Limit: "requests", Tenant: "stranger", Number: 1, Began: 1, Waiting: 1},
			{Limit: "requests", Tenant: "acme", Values: []string{"too many"}, Number: 9, Began: 9},
		},
	})
	if err != nil {
		t.Fatalf("renew: %v", err)
	}
	want := []quotav1.Grant_Status{quotav1.Grant_STATUS_GRANTED, quotav1.Grant_STATUS_UNKNOWN, quotav1.Grant_STATUS_GRANTED, quotav1.Grant_STATUS_UNKNOWN}
	for i, g := range renewed.Grants {
		if g.Status != want[i] {
			t.Errorf("grant %d: got %s, want %s", i, g.Status, want[i])
		}
	}
	if g := renewed.Grants[0]; g.Tokens < 1 || g.Number != 1 || g.PolicyVersion != 1 {
		t.Errorf("the grant of a full bucket that a request waits for: got %v, want tokens, number 1, version 1", g)
	}
	if g := renewed.Grants[1]; g.Number != 7 {
		t.Errorf("an unknown limit's grant has number %d, want the renewal's, 7", g.Number)
	}
	if a, s := renewed.Tenants[0], renewed.Tenants[1]; !a.Exists || a.Plan != "paid" || s.Exists || s.Id != "stranger" {
		t.Errorf("tenants: got %v and %v, want acme on the plan paid and a stranger that does not exist", a, s)
	}

	settled, err := lease.Settle(ctx, &quotav1.SettleRequest{Reports: []*quotav1.Report{report("gw-1", 1, 0, 12), report("gw-1", 2, 12, 5)}})
	if err != nil {
		t.Fatalf("settle: %v", err)
	}
	for i, r := range settled.Receipts {
		if r.Status != quotav1.Receipt_STATUS_SETTLED {
			t.Errorf("receipt %d: got %s %s, want SETTLED", i, r.Status, r.Message)
		}
	}
	again, err := lease.Settle(ctx, &quotav1.SettleRequest{Reports: []*quotav1.Report{report("gw-1", 4, 17, 1)}})
	if err != nil || again.Receipts[0].Status != quotav1.Receipt_STATUS_AHEAD || again.Receipts[0].NextSeq != 3 {
		t.Errorf("a report ahead: got %v, %v, want AHEAD, next 3", again, err)
	}
	broken := report("gw-2", 1, 0, 3)
	broken.Digest = broken.Digest[:5]
	rejected, err := lease.Settle(ctx, &quotav1.SettleRequest{Reports: []*quotav1.Report{broken, report("gw-3", 1, 0, 4)}})
	if err != nil || rejected.Receipts[0].Status != quotav1.Receipt_STATUS_REJECTED || rejected.Receipts[1].Status != quotav1.Receipt_STATUS_SETTLED {
		t.Errorf("a broken report beside a good one: got %v, %v, want REJECTED and SETTLED", rejected, err)
	}
	if got := n.total(); got != 21 {
		t.Errorf("usage: got %d, want 21", got)
	}
	code, body := n.get("/v1/usage?tenant=acme&by=BY_LIMIT")
	if code != 200 || !strings.Contains(body, `"admitted":"21"`) || !strings.Contains(body, `"limit":"requests"`) {
		t.Errorf("REST usage: got %d %s, want 21 admitted of requests", code, body)
	}
	var agents []string
	for after := ""; ; {
		page, err := n.admin().ListAgents(ctx, &quotav1.ListAgentsRequest{PageSize: 1, PageToken: after})
		if err != nil {
			t.Fatalf("agents after %q: %v", after, err)
		}
		for _, a := range page.Agents {
			agents = append(agents, a.Id)
		}
		if after = page.NextPageToken; after == "" {
			break
		}
	}
	if fmt.Sprint(agents) != "[gw-1 gw-2 gw-3]" {
		t.Errorf("agents, a page each: got %v, want gw-1, gw-2 and gw-3", agents)
	}
}

// A row that names what was never known goes to quarantine, and the rest of its
// report settles: a meter, a version, and a tenant where there is no default plan.
func TestUnknownRowsAreQuarantined(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		want   int64 // of the tenant stranger
	}{
		"with a default plan":    {policyText, 7},
		"without a default plan": {strings.Replace(policyText, "default_plan: free\n", "", 1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, embedded(t, c.policy))
			slot := time.Now().Truncate(5 * time.Minute).Unix()
			row := func(tenant, meter string, version, units int64) ledger.Row {
				return ledger.Row{Slot: slot, Tenant: tenant, Limit: "requests", Meter: meter, Version: version, Admitted: units}
			}
			r := ledger.NewReport("gw-1", 1, 1, 0, []ledger.Row{
				row("acme", "requests", 1, 5), row("acme", "bogus", 1, 100), row("acme", "requests", 99, 1000), row("stranger", "requests", 1, 7),
			}, time.Now().UnixMilli(), false)
			resp, err := n.leases().Settle(t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{wire.ReportToProto(r)}})
			if err != nil || resp.Receipts[0].Status != quotav1.Receipt_STATUS_SETTLED {
				t.Fatalf("settle: got %v, %v, want SETTLED", resp, err)
			}
			if got := n.total(); got != 5 {
				t.Errorf("usage of acme: got %d, want 5: the bogus rows are in quarantine", got)
			}
			u, err := n.usage().GetUsage(t.Context(), &quotav1.GetUsageRequest{Tenant: "stranger"})
			var got int64
			for _, r := range u.GetRows() {
				got += r.Admitted
			}
			if err != nil || got != c.want {
				t.Errorf("usage of a tenant that nobody created: got %d, %v, want %d", got, err, c.want)
			}
		})
	}
}

// What breaks a bound is refused whole, by the bound's name, by both doors.
func TestBoundsAreRefusedByName(t *testing.T) {
	n := start(t, embedded(t, policyText))
	ctx := t.Context()
	renew := func(change func(*quotav1.RenewRequest)) error {
		req := &quotav1.RenewRequest{Agent: "gw-1", Epoch: 1, Renewals: []*quotav1.Renewal{{Limit: "requests", Tenant: "acme", Number: 1}}}
		change(req)
		_, err := n.leases().Renew(ctx, req)
		return err
	}
	watch := func(agent string) error {
		stream, err := n.leases().Watch(ctx, &quotav1.WatchRequest{Agent: agent, Epoch: 1})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	_, page := n.admin().ListTenants(ctx, &quotav1.ListTenantsRequest{PageSize: 1001})
	_, role := n.admin().CreateKey(ctx, &quotav1.CreateKeyRequest{Role: "emperor"})
	_, tenant := n.admin().CreateTenant(ctx, &quotav1.CreateTenantRequest{Id: "no spaces", Plan: "free"})
	_, zone := n.usage().GetUsage(ctx, &quotav1.GetUsageRequest{Zone: "Middle/Earth"})
	for _, c := range []struct {
		what string
		err  error
		name string
	}{
		{"an agent without a name", renew(func(r *quotav1.RenewRequest) { r.Agent = "" }), "agent"},
		{"an epoch of zero", renew(func(r *quotav1.RenewRequest) { r.Epoch = 0 }), "epoch"},
		{"too many renewals", renew(func(r *quotav1.RenewRequest) {
			for len(r.Renewals) <= wire.MaxRenewals {
				r.Renewals = append(r.Renewals, r.Renewals[0])
			}
		}), "renewals"},
		{"too many tenants", renew(func(r *quotav1.RenewRequest) { r.Tenants = make([]string, wire.MaxTenants+1) }), "tenants"},
		{"a watcher without a name", watch("not a name"), "agent"},
		{"a page too large", page, "page_size"},
		{"a role that is none", role, "role"},
		{"a tenant that is none", tenant, "id"},
		{"a zone that is none", zone, "zone"},
	} {
		if status.Code(c.err) != codes.InvalidArgument || !strings.Contains(status.Convert(c.err).Message(), c.name) {
			t.Errorf("%s: got %v, want InvalidArgument that names %q", c.what, c.err, c.name)
		}
	}
	for path, name := range map[string]string{"/v1/tenants?page_size=1001": "page_size", "/v1/usage?zone=Middle/Earth": "zone", "/v1/policy?version=-1": "version"} {
		if code, body := n.get(path); code != 400 || !strings.Contains(body, name) {
			t.Errorf("GET %s: got %d %s, want 400 that names %q", path, code, body, name)
		}
	}
}

// REST is the same services: tenants with slashes in their ids, JSON errors, fields
// that do not exist refused.
func TestREST(t *testing.T) {
	priced := strings.Replace(policyText, "burst: 2000, meter: requests}\n", "burst: 2000, meter: requests}\n    price: {monthly: 49.00 USD}\n", 1)
	n := start(t, embedded(t, priced))
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"POST", "/v1/tenants", `{"id":"org/team","plan":"free"}`, 200, `"id":"org/team"`},
		{"GET", "/v1/tenants/org/team", "", 200, `"plan":"free"`},
		{"POST", "/v1/tenants/org/team:setPlan", `{"plan":"paid"}`, 200, `"plan":"paid"`},
		{"POST", "/v1/tenants", `{"id":"org/team","plan":"free"}`, 409, `already exists`},
		// What would be cleaned to another tenant's path is refused, and redirects nobody.
		{"POST", "/v1/tenants/org//team:suspend", `{}`, 400, `element`},
		{"POST", "/v1/tenants/org/./team:suspend", `{}`, 400, `element`},
		{"POST", "/v1/tenants/x/../org/team:suspend", `{}`, 400, `element`},
		{"POST", "/v1/tenants/org%2F%2Fteam:suspend", `{}`, 400, `element`},
		{"GET", "/v1/tenants/org/team/", "", 400, `element`},
		{"GET", "/v1/tenants/org%2Fteam", "", 200, `"suspended":false`},
		{"POST", "/v1/tenants", `{"id":"org//team","plan":"free"}`, 400, `elements`},
		{"POST", "/v1/tenants", `{"id":"org/..","plan":"free"}`, 400, `elements`},
		{"POST", "/v1/tenants", `{"id":"x","plan":"gold"}`, 400, `gold`},
		{"POST", "/v1/tenants", `{"id":"x","plam":"free"}`, 400, `plam`},
		{"GET", "/v1/tenants/nobody", "", 404, `"code":5`},
		{"GET", "/v1/policy", "", 200, `"version":"1"`},
		{"POST", "/v1/policy", `{"document":"plans: {a: {x: 1}}","file":"f.yaml"}`, 400, `"line":1`},
		{"POST", "/v1/policy", `{"document":"plans: {free: {}, paid: {}}\nlimits: [{name: l, rate: 1/minute, match: {ip: \"2001:0db8*\"}}]","dry_run":true}`, 200, `"line":2`},
		{"POST", "/v1/policy", `{"document":"plans: {free: {}, paid: {}}\nlimits: [{name: l, rate: 1/minute, match: {ip: \"2001:0db8*\"}}]","dry_run":true}`, 200, `"message":"limit l: no address begins with 2001:0db8: `},
		{"POST", "/v1/policy", `{"document":"plans: {free: {}, paid: {}}\nlimits: [{name: l, rate: 1/minute, match: {ip: \"2001:db8:*\"}}]","dry_run":true}`, 200, `"warnings":[]`},
		{"PUT", "/v1/switches", `{"mode":"MODE_ALLOW_ALL"}`, 200, `"mode":"MODE_ALLOW_ALL"`},
		{"GET", "/v1/switches", "", 200, `"mode":"MODE_ALLOW_ALL"`},
		{"GET", "/v1/plans", "", 200, `"default_plan":"free"`},
		{"GET", "/v1/version", "", 200, `"ledger":"sqlite"`},
		{"GET", "/v1/nothing", "", 404, `Not Found`},
		{"DELETE", "/v1/tenants/acme", "", 400, `policy version 1 names tenant acme`},
		{"PUT", "/v1/tenants/acme", "", 405, `PUT is not served`},
		{"GET", "/v1/usage?tenant=acme&by=BY_HOUR", "", 200, `"rows":[]`},
		{"GET", "/v1/statements:preview?tenant=acme", "", 200, `"document":"{\"format\":1,\"tenant\":\"acme\",`},
		{"POST", "/v1/statements:close", `{"tenant": "acme", "force_reason": "gone"}`, 400, `has not ended`},
		{"POST", "/v1/credits", `{"id": "welcome", "tenant": "acme", "amount": "50.00 USD"}`, 200, `"left":"50.00 USD"`},
		{"POST", "/v1/credits", `{"id": "welcome", "tenant": "acme", "amount": "51.00 USD"}`, 409, `says something else`},
		{"POST", "/v1/credits/welcome:void", `{"reason": "a mistake"}`, 200, `"void_reason":"a mistake"`},
		{"GET", "/v1/credits?tenant=acme", "", 200, `"id":"welcome"`},
		{"POST", "/v1/statements:closeDue", `{"dry_run": true}`, 200, `"closed":[]`},
		{"POST", "/v1/statements:simulate", `{"plan": "paid", "periods": 2}`, 200, `"periods":[]`},
		{"POST", "/v1/statements:simulate", `{"document": "plans: 3"}`, 400, `"line":1`},
		{"GET", "/v1/audit?object=acme&page_size=1", "", 200, `"action":"tenant.apply"`},
		{"GET", "/v1/audit?subject=acme", "", 400, `allowed are page_size, page_token, actor, action, object`},
		{"GET", "/v1/statements?tenant=acme", "", 200, `"statements":[]`},
		{"GET", "/v1/statements:show?tenant=acme&period=2026-01", "", 404, `no statement`},
		{"GET", "/v1/statements:preview", "", 400, `tenant is`},
		{"GET", "/v1/statements:preview?tenant=nobody", "", 404, `tenant \"nobody\"`},
		{"GET", "/v1/statements:preview?tenant=acme&period=november", "", 400, `write the month that it begins in`},
		{"GET", "/v1/usage/breakdown?by=tenant,limit&every=EVERY_DAY&zone=Europe/Berlin", "", 200, `"slot_ms":"300000"`},
		{"GET", "/v1/usage/breakdown?by=agent", "", 400, `it must be tenant, plan, limit`},
		{"GET", "/v1/usage/breakdown?top=1001", "", 400, `top is 1001; it must be 0 to 1000`},
		{"GET", "/v1/usage/breakdown?every=WEEK", "", 400, `it must be EVERY_RANGE, EVERY_SLOT, EVERY_HOUR, EVERY_DAY or EVERY_MONTH`},
		{"GET", "/v1/usage/breakdown?height=7", "", 404, `block 7`},
		{"GET", "/v1/usage/export?by=tenant&every=EVERY_DAY", "", 200, "start,tenant,admitted,overage,denied\n"},
		{"GET", "/v1/usage/export?format=jsonl", "", 200, ""},
		{"GET", "/v1/usage/export?format=xml", "", 400, `it must be csv, jsonl or parquet`},
		{"GET", "/v1/usage/export?bye=tenant", "", 400, `there is no parameter \"bye\"; allowed are by, every`},
		{"GET", "/v1/usage/export?by=agent", "", 400, `it must be tenant, plan, limit`},
		{"GET", "/v1/usage/export?format=csv&height=7", "", 404, `block 7`},
		{"GET", "/v1/usage?tennant=acme", "", 400, `there is no parameter \"tennant\"; allowed are tenant, from_ms`},
		{"GET", "/v1/usage?by=hour", "", 400, `by is \"hour\"; it must be BY_TOTAL, BY_HOUR, BY_DAY, BY_MONTH, BY_LIMIT or BY_ATTRIBUTE`},
		{"GET", "/v1/usage?from_ms=today", "", 400, `from_ms is \"today\"; it must be a whole number`},
		{"GET", "/v1/usage?tenant=a&tenant=b", "", 400, `tenant is given 2 times`},
		{"GET", "/v1/usage?from_ms=5&to_ms=4", "", 400, `from_ms is 5`},
		{"GET", "/v1/plans?version=1", "", 400, `this call takes none`},
		{"POST", "/v1/tenants?id=x", `{"id":"x","plan":"free"}`, 400, `this call takes none`},
		{"GET", "/healthz", "", 200, `true`},
		{"GET", "/metrics", "", 200, `quota_server_policy_version 1`},
	} {
		code, body := n.call(c.method, c.path, "", c.body)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: got %d %s, want %d with %s", c.method, c.path, code, body, c.code, c.want)
		}
	}
}

// An open server is open to this machine's people, not to the web pages that they
// have open.
func TestWebPagesAreRefused(t *testing.T) {
	n := start(t, embedded(t, policyText))
	_, port, err := net.SplitHostPort(n.HTTPAddr())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, method, host string
		header             http.Header
		want               int
	}{
		{"a program", "POST", n.HTTPAddr(), nil, 200},
		{"a program, by name", "POST", "localhost:" + port, nil, 200},
		{"a page of another site", "POST", n.HTTPAddr(), http.Header{"Origin": {"https://evil.example"}}, 403},
		{"a page of another site, by its browser's word", "POST", n.HTTPAddr(), http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
		{"a page whose name points here", "GET", "evil.example:" + port, http.Header{"Origin": {"http://evil.example:" + port}}, 403},
	} {
		path, body := "/v1/switches", `{"mode":"MODE_NORMAL"}`
		if c.method == "POST" {
			path, body = "/v1/tenants/acme:setPlan", `{"plan":"free"}`
		}
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+n.HTTPAddr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		for k, v := range c.header {
			req.Header[k] = v
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: got %d, want %d", c.what, resp.StatusCode, c.want)
		}
	}
}

// An invalid policy changes nothing, and says everything that is wrong with it.
func TestInvalidPolicyChangesNothing(t *testing.T) {
	n := start(t, embedded(t, policyText))
	_, err := n.admin().ApplyPolicy(t.Context(), &quotav1.ApplyPolicyRequest{
		File: "quota.yaml", Document: "plans:\n  free:\n    limits:\n      - {name: a, rate: 0/hour}\n      - {name: b, rate: 1/parsec}\n",
	})
	var lines []int32
	for _, d := range status.Convert(err).Details() {
		if f, ok := d.(*quotav1.Fault); ok && f.File == "quota.yaml" {
			lines = append(lines, f.Line)
		}
	}
	if status.Code(err) != codes.InvalidArgument || fmt.Sprint(lines) != "[4 5]" {
		t.Errorf("got %v with faults on lines %v, want InvalidArgument and lines 4 and 5", err, lines)
	}
	v, err := n.admin().GetPolicy(t.Context(), &quotav1.GetPolicyRequest{})
	if err != nil || v.Policy.Version != 1 || v.Policy.Document != policyText {
		t.Errorf("in force: got version %d, %v, want version 1 as it was", v.GetPolicy().GetVersion(), err)
	}
	if _, err := n.admin().ApplyPolicy(t.Context(), &quotav1.ApplyPolicyRequest{Document: policyText + "zone: Europe/Berlin\n", BaseVersion: 7}); status.Code(err) != codes.Aborted {
		t.Errorf("a policy made from a version not in force: got %v, want Aborted", err)
	}
}

// Every report that was acknowledged before and during a stop is in the ledger
// after it, and nothing that was not sent is.
func TestGracefulStopLosesNothing(t *testing.T) {
	c := embedded(t, policyText)
	n := start(t, c)
	const agents = 8
	var acknowledged [agents]int64
	var all sync.WaitGroup
	under := make(chan struct{})
	var once sync.Once
	for a := range agents {
		client := n.leases()
		all.Go(func() {
			name := fmt.Sprintf("gw-%d", a)
			for seq, sum := int64(1), int64(0); ; seq++ {
				units := seq%7 + 1
				resp, err := client.Settle(context.Background(), &quotav1.SettleRequest{Reports: []*quotav1.Report{report(name, seq, sum, units)}})
				if err != nil || resp.Receipts[0].Status != quotav1.Receipt_STATUS_SETTLED {
					return // the server has stopped; the last report may be stored or not
				}
				sum += units
				acknowledged[a] = sum
				if seq == 20 {
					once.Do(func() { close(under) })
				}
			}
		})
	}
	<-under
	if err := n.stop(); err != nil {
		t.Fatalf("stop: %v", err)
	}
	all.Wait()
	again := start(t, c)
	resp, err := again.admin().ListAgents(t.Context(), &quotav1.ListAgentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Agents) != agents {
		t.Fatalf("%d agents in the ledger, want %d", len(resp.Agents), agents)
	}
	var stored int64
	for _, a := range resp.Agents {
		var i int
		if _, err := fmt.Sscanf(a.Id, "gw-%d", &i); err != nil {
			t.Fatal(err)
		}
		stored += a.Total
		if a.Total < acknowledged[i] || a.Total > acknowledged[i]+7 {
			t.Errorf("%s: the ledger has %d, acknowledged were %d", a.Id, a.Total, acknowledged[i])
		}
	}
	if got := again.total(); got != stored {
		t.Errorf("usage is %d, the agents settled %d", got, stored)
	}
}

// Two servers on one directory would each lease everything out.
func TestDirectoryIsHeld(t *testing.T) {
	c := embedded(t, policyText)
	n := start(t, c)
	c.Log = slog.New(slog.DiscardHandler)
	if _, err := boot.New(t.Context(), c); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("a second server on the directory: got %v, want a refusal", err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	start(t, c) // free again
}

// Beyond loopback somebody has to have a key.
func TestOpenOnlyOnLoopback(t *testing.T) {
	c := embedded(t, policyText)
	c.Log = slog.New(slog.DiscardHandler)
	c.GRPCAddr = "0.0.0.0:0"
	s, err := boot.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); !errors.Is(err, server.ErrNoKeys) {
		t.Errorf("got %v, want %v", err, server.ErrNoKeys)
	}
	c.InsecureOpen = true
	if v, err := start(t, c).admin().GetVersion(t.Context(), &quotav1.GetVersionRequest{}); err != nil {
		t.Errorf("insecurely open: got %v, %v", v, err)
	}
}
