package boot_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/internal/testenv"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// renewOne renews acme's bucket.
func (n *node) renewOne(number int64) (quotav1.Grant_Status, error) {
	resp, err := n.leases().Renew(n.t.Context(), &quotav1.RenewRequest{
		Agent: "gw-1", Epoch: 1, Renewals: []*quotav1.Renewal{{Limit: "requests", Tenant: "acme", Number: number, Began: 1, Waiting: 1}},
	})
	if err != nil {
		return 0, err
	}
	return resp.Grants[0].Status, nil
}

// granted renews acme's bucket until it is granted: agents repeat a renewal under its number where the server says that
// its store was late, as one on a busy machine may be.
func (n *node) granted(number int64, when string) {
	n.t.Helper()
	var got quotav1.Grant_Status
	var err error
	eventually(n.t, "a renewal is granted when "+when, func() bool {
		got, err = n.renewOne(number)
		return err == nil && got == quotav1.Grant_STATUS_GRANTED
	}, func() any { return fmt.Sprint(got, err) })
}

func (n *node) serving(service string) healthpb.HealthCheckResponse_ServingStatus {
	n.t.Helper()
	resp, err := healthpb.NewHealthClient(n.dial("")).Check(n.t.Context(), &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.Status
}

// A server whose database is away comes up, says so, migrates and works once it is
// there; when it goes away again, renewals go on from memory, nothing is settled,
// and all recovers without a restart.
func TestPostgresAway(t *testing.T) {
	pg := testenv.PrivatePostgres(t, false)
	c := boot.Config{Ledger: pg.AppURL(), LedgerOwnerURL: pg.OwnerURL(), DataDir: t.TempDir(), BootstrapAdminKey: adminKey, Policy: file(t, policyText)}
	pg.Stop()
	n := start(t, c)
	if code, body := n.get("/healthz"); code != 200 {
		t.Errorf("/healthz without the database: got %d %s, want 200", code, body)
	}
	for _, part := range []string{"ledger", "policy", "migrations", "policy file"} {
		eventually(t, "readiness says why "+part+" does not work", func() bool {
			why := n.reasons()[part]
			return why != "" && why != "not reached yet"
		}, func() any { return n.reasons() })
	}
	// The bootstrap key opens the server without the store; an agent has to wait for its policy.
	if _, err := n.admin().ListPlans(t.Context(), &quotav1.ListPlansRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("plans without the database: got %v, want Unavailable", err)
	}
	if _, err := quotav1.NewLeaseServiceClient(n.dial("some-agents-key")).Renew(t.Context(), &quotav1.RenewRequest{Agent: "gw-1", Epoch: 1}); status.Code(err) != codes.Unavailable {
		t.Errorf("an agent's key that cannot be looked up: got %v, want Unavailable", err)
	}

	pg.Start()
	n.waitReady()
	admin := n.key
	n.key = n.newKey("agent", "gw-1").Secret
	n.granted(1, "the database is there")
	if resp, err := n.leases().Settle(t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{report("gw-1", 1, 0, 2)}}); err != nil || resp.Receipts[0].Status != quotav1.Receipt_STATUS_SETTLED {
		t.Fatalf("settle: got %v, %v, want SETTLED", resp, err)
	}

	pg.Stop()
	eventually(t, "readiness says that the ledger is away", func() bool { return n.reasons()["ledger"] != "" })
	n.granted(2, "the database is away: from memory")
	resp, err := n.leases().Renew(t.Context(), &quotav1.RenewRequest{
		Agent: "gw-1", Epoch: 1, Tenants: []string{"acme", "never-seen"},
		Renewals: []*quotav1.Renewal{{Limit: "requests", Tenant: "never-seen", Number: 1, Began: 1}},
	})
	if err != nil || resp.Grants[0].Status != quotav1.Grant_STATUS_UNAVAILABLE || resp.Tenants[0].Id != "acme" || resp.Tenants[1].Id != "" {
		t.Errorf("an unknown tenant without the database: got %v, %v, want UNAVAILABLE, acme, and no answer for it", resp, err)
	}
	if _, err := n.leases().Settle(t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{report("gw-1", 2, 2, 3)}}); status.Code(err) != codes.Unavailable {
		t.Errorf("settle without the database: got %v, want Unavailable", err)
	}
	if got := n.serving(quotav1.LeaseService_ServiceDesc.ServiceName); got != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health of leases without the database: got %s, want SERVING", got)
	}
	if got := n.serving(""); got != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health of all without the database: got %s, want NOT_SERVING", got)
	}
	w := n.watch(&quotav1.WatchRequest{Agent: "gw-1", Epoch: 1})
	w.next("the policy in memory", version(1))

	pg.Start()
	n.waitReady()
	if resp, err := n.leases().Settle(t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{report("gw-1", 2, 2, 3)}}); err != nil || resp.Receipts[0].Status != quotav1.Receipt_STATUS_SETTLED {
		t.Errorf("settle after the database came back: got %v, %v, want SETTLED", resp, err)
	}
	n.key = admin
	if got := n.total(); got != 5 {
		t.Errorf("usage: got %d, want 5", got)
	}
}

// The same with the Redis Cluster: bucket by bucket unavailable, and back.
func TestRedisAway(t *testing.T) {
	cluster := testenv.PrivateRedis(t)
	c := production(t, testenv.Postgres(t))
	c.LeaseStore = "redis://" + strings.Join(cluster.Addrs(), ",") + "?prefix=away:"
	c.Policy = file(t, policyText)
	for _, addr := range cluster.Addrs() {
		cluster.Kill(addr)
	}
	n := start(t, c)
	eventually(t, "readiness says why leases do not work", func() bool {
		why := n.reasons()["leases"]
		return why != "" && why != "not reached yet"
	})
	if got, err := n.renewOne(1); err != nil || got != quotav1.Grant_STATUS_UNAVAILABLE {
		t.Errorf("renew without Redis: got %s, %v, want UNAVAILABLE", got, err)
	}
	if resp, err := n.leases().Settle(t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{report("gw-1", 1, 0, 2)}}); err != nil || resp.Receipts[0].Status != quotav1.Receipt_STATUS_SETTLED {
		t.Errorf("settle without Redis: got %v, %v, want SETTLED", resp, err)
	}
	for _, addr := range cluster.Addrs() {
		cluster.Restart(addr)
	}
	n.waitReady()
	// A node that was dialled in vain is dialled again a second later, so the first
	// renewals may still find it away; agents repeat them under the same number.
	n.granted(2, "Redis came back")
	// One master dies: its replica takes over within seconds, without a restart.
	cluster.Kill(cluster.Masters()[0])
	eventually(t, "all buckets are granted again", func() bool {
		for number := int64(3); number < 8; number++ {
			if got, err := n.renewOne(number); err != nil || got != quotav1.Grant_STATUS_GRANTED && got != quotav1.Grant_STATUS_STALE {
				return false
			}
		}
		return len(n.reasons()) == 0
	}, func() any { return n.reasons() })
}

// The kill switch works without the database: what one server is told reaches the
// agents of another, by way of Redis; the database has it, with who
// set it, once it is back. Without Redis either, each server that is told tells its own.
func TestSwitchesWithEnginesAway(t *testing.T) {
	pg := testenv.PrivatePostgres(t, false)
	cluster := testenv.PrivateRedis(t)
	c := production(t, pg)
	c.BootstrapAdminKey = adminKey
	c.LeaseStore = "redis://" + strings.Join(cluster.Addrs(), ",") + "?prefix=switches:"
	a := start(t, c)
	a.apply(policyText)
	a.waitReady()
	agent := a.newKey("agent", "gw-1")
	// It reads the keys as it begins. To ask it again and again whether it knows one is to give wrong keys: after twenty
	// of these it tells nobody here whether the bootstrap key is right.
	b := start(t, c)
	b.waitReady()
	if _, err := quotav1.NewLeaseServiceClient(b.dial(agent.Secret)).Renew(t.Context(), &quotav1.RenewRequest{Agent: "gw-1", Epoch: 1}); err != nil {
		t.Fatalf("the other server does not know the key: %v", err)
	}
	watch := func(n *node) *watcher {
		key := n.key
		defer func() { n.key = key }()
		n.key = agent.Secret
		return n.watch(&quotav1.WatchRequest{Agent: "gw-1", Epoch: 1})
	}
	ofA, ofB := watch(a), watch(b)
	ofA.next("version 1", version(1))
	ofB.next("version 1", version(1))
	mode := func(m quotav1.Switches_Mode) func(*quotav1.WatchResponse) bool {
		return func(r *quotav1.WatchResponse) bool { return r.Switches != nil && r.Switches.Mode == m }
	}
	set := func(n *node, m quotav1.Switches_Mode, pending ...string) {
		t.Helper()
		// A store that is there and late is pending as well, until the server has told it.
		var got *quotav1.Switches
		eventually(t, fmt.Sprintf("%s is set, with %q pending", m, pending), func() bool {
			resp, err := n.admin().SetSwitches(t.Context(), &quotav1.SetSwitchesRequest{Switches: &quotav1.Switches{Mode: m}})
			got = resp.GetSwitches()
			return err == nil && strings.Join(got.GetPending(), ",") == strings.Join(pending, ",")
		}, func() any { return got })
	}
	set(a, quotav1.Switches_MODE_SHADOW_ALL)
	ofB.next("shadow all, with everything there", mode(quotav1.Switches_MODE_SHADOW_ALL))

	pg.Stop()
	set(a, quotav1.Switches_MODE_ALLOW_ALL, "policy store")
	ofA.next("allow all, without the database", mode(quotav1.Switches_MODE_ALLOW_ALL))
	ofB.next("allow all, without the database, told by the other server", mode(quotav1.Switches_MODE_ALLOW_ALL))

	for _, addr := range cluster.Addrs() {
		cluster.Kill(addr)
	}
	for i, n := range []*node{a, b} {
		w := []*watcher{ofA, ofB}[i]
		set(n, quotav1.Switches_MODE_NORMAL, "policy store", "lease store")
		w.next("normal, without either", mode(quotav1.Switches_MODE_NORMAL))
	}
	pg.Start()
	eventually(t, "the database has the switches", func() bool {
		got, err := a.admin().GetSwitches(t.Context(), &quotav1.GetSwitchesRequest{})
		return err == nil && got.Switches.Mode == quotav1.Switches_MODE_NORMAL && strings.Join(got.Switches.Pending, ",") == "lease store"
	})
}
