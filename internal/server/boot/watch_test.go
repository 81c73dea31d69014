package boot_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/internal/testenv"
	"github.com/f4ee788f/quota/migrations"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// watcher is a stream whose messages wait to be looked at.
type watcher struct {
	t        testing.TB
	messages chan *quotav1.WatchResponse
	end      chan error
}

func (n *node) watch(req *quotav1.WatchRequest) *watcher {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.t.Cleanup(cancel)
	stream, err := n.leases().Watch(ctx, req)
	if err != nil {
		n.t.Fatal(err)
	}
	w := &watcher{t: n.t, messages: make(chan *quotav1.WatchResponse, 64), end: make(chan error, 1)}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				w.end <- err
				return
			}
			w.messages <- m
		}
	}()
	return w
}

// next waits for a message that is looked for.
func (w *watcher) next(what string, is func(*quotav1.WatchResponse) bool) *quotav1.WatchResponse {
	w.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		select {
		case m := <-w.messages:
			if is(m) {
				return m
			}
			w.t.Logf("waiting for %s, got %v", what, m)
		case err := <-w.end:
			w.t.Fatalf("waiting for %s, the stream ended: %v", what, err)
		case <-deadline.C:
			w.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func version(v int64) func(*quotav1.WatchResponse) bool {
	return func(m *quotav1.WatchResponse) bool { return m.Policy.GetVersion() == v }
}

func tenant(id, plan string) func(*quotav1.WatchResponse) bool {
	return func(m *quotav1.WatchResponse) bool {
		for _, t := range m.Tenants {
			if t.Id == id && t.Plan == plan {
				return true
			}
		}
		return false
	}
}

// A shadow policy reaches streams, and so does its end; what is in force
// stays what it is until the shadow is promoted.
func TestWatchShadow(t *testing.T) {
	n := start(t, embedded(t, policyText))
	w := n.watch(&quotav1.WatchRequest{Agent: "gw-1", Epoch: 1})
	if first := w.next("the policy in force", version(1)); first.Shadow == nil || first.Shadow.Version != 0 {
		t.Errorf("first message: the shadow is %v, want none, and said so", first.Shadow)
	}
	shadow := func(v int64) func(*quotav1.WatchResponse) bool {
		return func(m *quotav1.WatchResponse) bool { return m.Shadow != nil && m.Shadow.Version == v }
	}
	text := strings.Replace(policyText, "100/hour", "50/hour", 1)
	resp, err := n.admin().ApplyPolicy(t.Context(), &quotav1.ApplyPolicyRequest{Document: text, Shadow: true})
	if err != nil || resp.Change.Version != 2 || !resp.Change.Changed {
		t.Fatalf("a shadow: %v, %v", resp.GetChange(), err)
	}
	if m := w.next("the shadow", shadow(2)); m.Policy != nil || m.RefreshTenants || m.Shadow.Plans[0].Limits[0].Rate.Units != 50 {
		t.Errorf("with the shadow came %v", m)
	}
	// Who connects later is told too.
	n.watch(&quotav1.WatchRequest{Agent: "gw-2", Epoch: 1}).next("the shadow", shadow(2))
	if p, err := n.admin().GetShadow(t.Context(), &quotav1.GetShadowRequest{}); err != nil || p.Policy.Version != 2 || p.Policy.Document != text || !p.Policy.Shadow || !p.Policy.Active {
		t.Errorf("shadow: %v, %v", p.GetPolicy(), err)
	}
	if _, err := n.admin().PromoteShadow(t.Context(), &quotav1.PromoteShadowRequest{Version: 7}); status.Code(err) != codes.Aborted {
		t.Errorf("promoting another version: %v, want Aborted", err)
	}
	if resp, err := n.admin().PromoteShadow(t.Context(), &quotav1.PromoteShadowRequest{Version: 2}); err != nil || resp.Change.Version != 3 {
		t.Errorf("promoted: %v, %v", resp.GetChange(), err)
	}
	m := w.next("version 3", version(3))
	if !shadow(0)(m) {
		w.next("no shadow", shadow(0))
	}
	if code, body := n.call("GET", "/v1/policy/shadow", "", ""); code != 404 {
		t.Errorf("no shadow by REST: %d %s", code, body)
	}
}

// Streams are told of a suspended tenant, and of one that goes on.
func TestWatchSuspended(t *testing.T) {
	n := start(t, embedded(t, policyText))
	w := n.watch(&quotav1.WatchRequest{Agent: "gw-1", Epoch: 1})
	w.next("the policy in force", version(1))
	suspended := func(is bool) func(*quotav1.WatchResponse) bool {
		return func(m *quotav1.WatchResponse) bool { return len(m.Tenants) == 1 && m.Tenants[0].Suspended == is }
	}
	if _, err := n.admin().SuspendTenant(t.Context(), &quotav1.SuspendTenantRequest{Id: "acme"}); err != nil {
		t.Fatal(err)
	}
	w.next("acme suspended", suspended(true))
	if code, body := n.call("POST", "/v1/tenants/acme:resume", "", "{}"); code != 200 {
		t.Errorf("resume by REST: %d %s", code, body)
	}
	w.next("acme going on", suspended(false))
}

// A stream begins with what is in force, and then has each change.
func TestWatch(t *testing.T) {
	n := start(t, embedded(t, policyText))
	n.waitReady() // health says so once every part was asked
	w := n.watch(&quotav1.WatchRequest{Agent: "gw-1", Epoch: 1})
	first := w.next("the policy in force", version(1))
	if first.Switches == nil || !first.RefreshTenants || len(first.Tenants) != 0 || len(first.Policy.Plans) != 2 {
		t.Errorf("first message: got %v, want two plans, switches, and to ask again for tenants resolved before", first)
	}
	if v := n.apply(strings.Replace(policyText, "100/hour", "150/hour", 1)); v != 2 {
		t.Fatalf("applied version %d, want 2", v)
	}
	second := w.next("version 2", version(2))
	if second.Switches != nil {
		t.Errorf("the switches did not change, and the agent was told %v", second.Switches)
	}
	if !second.RefreshTenants {
		t.Error("overrides may have changed with the plans, and the agent was not told to ask again")
	}
	if _, err := n.admin().SetTenantPlan(t.Context(), &quotav1.SetTenantPlanRequest{Id: "acme", Plan: "free"}); err != nil {
		t.Fatal(err)
	}
	moved := w.next("acme on the plan free", tenant("acme", "free"))
	if moved.TenantChange <= first.TenantChange {
		t.Errorf("tenant change %d after %d: it must rise", moved.TenantChange, first.TenantChange)
	}
	if _, err := n.admin().SetSwitches(t.Context(), &quotav1.SetSwitchesRequest{Switches: &quotav1.Switches{Mode: quotav1.Switches_MODE_ALLOW_ALL, DeniedTenants: []string{"mallory"}}}); err != nil {
		t.Fatal(err)
	}
	w.next("the switches", func(m *quotav1.WatchResponse) bool {
		return m.Switches.GetMode() == quotav1.Switches_MODE_ALLOW_ALL && len(m.Switches.DeniedTenants) == 1 && m.Policy == nil
	})
	// Who comes back with all of it gets the policy, and nothing else to do.
	back := n.watch(&quotav1.WatchRequest{Agent: "gw-1", Epoch: 1, PolicyVersion: 2, TenantChange: moved.TenantChange})
	if m := back.next("the policy in force", version(2)); m.RefreshTenants || len(m.Tenants) != 0 {
		t.Errorf("an agent that missed nothing: got %v, want nothing to refresh", m)
	}
	// Who comes back from before gets what it missed.
	behind := n.watch(&quotav1.WatchRequest{Agent: "gw-2", Epoch: 1, PolicyVersion: 1, TenantChange: first.TenantChange})
	behind.next("acme on the plan free", tenant("acme", "free"))
	// Who comes with a number of another store asks again for everything.
	foreign := n.watch(&quotav1.WatchRequest{Agent: "gw-3", Epoch: 1, TenantChange: 1 << 40})
	if m := foreign.next("the policy in force", version(2)); !m.RefreshTenants {
		t.Errorf("an agent of another store: got %v, want refresh_tenants", m)
	}
	// Streams end with the server, at once; an agent's with a status that says to come back.
	health, err := healthpb.NewHealthClient(n.dial("")).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := health.Recv(); err != nil || m.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health: got %v, %v, want SERVING", m, err)
	}
	begin := time.Now()
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the server took %s to end with streams open", took)
	}
	if err := <-w.end; status.Code(err) != codes.Unavailable {
		t.Errorf("at the end the stream got %v, want Unavailable", err)
	}
}

// production is a server on a Postgres that is up to date.
func production(t testing.TB, pg *testenv.PG) boot.Config {
	t.Helper()
	if err := migrations.Postgres(t.Context(), pg.OwnerURL()); err != nil {
		t.Fatal(err)
	}
	return boot.Config{GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Ledger: pg.AppURL(), DataDir: t.TempDir()}
}

// Servers that share a ledger know of each other's changes: policy, tenants, switches and keys.
func TestTwoServers(t *testing.T) {
	c := production(t, testenv.Postgres(t))
	c.BootstrapAdminKey = adminKey
	a, b := start(t, c), start(t, c)
	a.apply(policyText)
	b.waitReady()
	agent := a.newKey("agent", "gw-1")
	eventually(t, "the other server knows the key", func() bool {
		_, err := quotav1.NewLeaseServiceClient(b.dial(agent.Secret)).Renew(t.Context(), &quotav1.RenewRequest{Agent: "gw-1", Epoch: 1})
		return err == nil
	})
	b.key = agent.Secret
	w := b.watch(&quotav1.WatchRequest{Agent: "gw-1", Epoch: 1})
	w.next("version 1", version(1))
	a.apply(strings.Replace(policyText, "100/hour", "150/hour", 1))
	w.next("version 2", version(2))
	if _, err := a.admin().SetTenantPlan(t.Context(), &quotav1.SetTenantPlanRequest{Id: "acme", Plan: "free"}); err != nil {
		t.Fatal(err)
	}
	w.next("acme on the plan free", tenant("acme", "free"))
	// What one server settled, the other knows.
	r := report("gw-1", 1, 0, 3)
	for i, n := range []*node{a, b} {
		resp, err := quotav1.NewLeaseServiceClient(n.dial(agent.Secret)).Settle(t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{r}})
		want := []quotav1.Receipt_Status{quotav1.Receipt_STATUS_SETTLED, quotav1.Receipt_STATUS_ALREADY}[i]
		if err != nil || resp.Receipts[0].Status != want {
			t.Errorf("server %d: got %v, %v, want %s", i, resp, err, want)
		}
	}
	if got := a.total(); got != 3 {
		t.Errorf("usage: got %d, want 3", got)
	}
	if _, err := a.admin().RevokeKey(t.Context(), &quotav1.RevokeKeyRequest{Id: agent.Key.Id}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-w.end:
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("the stream of a key that was revoked: got %v, want Unauthenticated", err)
		}
	case <-time.After(patience):
		t.Errorf("the stream of a key that was revoked is still open after %s", patience)
	}
	lease := quotav1.NewLeaseServiceClient(b.dial(agent.Secret))
	eventually(t, "the other server knows that the key is revoked", func() bool {
		_, err := lease.Renew(t.Context(), &quotav1.RenewRequest{Agent: "gw-1", Epoch: 1})
		return status.Code(err) == codes.Unauthenticated
	})
}

// The kill switch works before there is a policy: agents are told, and of the policy once it is there.
func TestSwitchesBeforeAPolicy(t *testing.T) {
	n := start(t, production(t, testenv.Postgres(t)))
	w := n.watch(&quotav1.WatchRequest{Agent: "gw-1", Epoch: 1})
	c := n.agent("gw-2")
	if _, err := n.admin().SetSwitches(t.Context(), &quotav1.SetSwitchesRequest{Switches: &quotav1.Switches{Mode: quotav1.Switches_MODE_ALLOW_ALL}}); err != nil {
		t.Fatal(err)
	}
	w.next("allow all, without a policy", func(r *quotav1.WatchResponse) bool {
		return r.Policy == nil && r.Switches != nil && r.Switches.Mode == quotav1.Switches_MODE_ALLOW_ALL
	})
	eventually(t, "an agent without a policy allows all", func() bool { return spent(t.Context(), 1, c) == 1 })
	n.apply(policyText)
	w.next("version 1", version(1))
}

// Streams that nobody reads any more do not lock their agent out: the oldest gives way to a new one.
func TestTheOldestWatchGivesWay(t *testing.T) {
	n := start(t, embedded(t, monthlyText))
	var streams []*watcher
	for range 6 {
		w := n.watch(&quotav1.WatchRequest{Agent: "gw-0", Epoch: 1})
		w.next("the policy", version(1))
		streams = append(streams, w)
	}
	for i, w := range streams[:2] {
		select {
		case err := <-w.end:
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("stream %d ended with %v, want RESOURCE_EXHAUSTED", i, err)
			}
		case <-time.After(patience):
			t.Errorf("stream %d goes on beside five newer ones", i)
		}
	}
	if _, err := n.admin().CreateTenant(t.Context(), &quotav1.CreateTenantRequest{Id: "acme", Plan: "p"}); err != nil {
		t.Fatal(err)
	}
	for _, w := range streams[2:] {
		w.next("that a tenant is new", func(m *quotav1.WatchResponse) bool { return m.TenantChange > 0 })
	}
}
