package integration

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const operated = `plans:
  p: {limits: [{name: requests, rate: 1000/second, burst: 1000, meter: requests}]}
tenants:
  - {id: acme, plan: p}
  - {id: acme/web, plan: p, parent: acme}
`

// What operators do is in force at a gateway: switches, the switch file, a tenant suspended, a policy tried. (Within a
// second, which internal/server holds where time is virtual; here a busy machine may take longer.)
// And the ledger has what it would have denied, and bills none of it.
func TestOperators(t *testing.T) {
	dir := t.TempDir()
	policy, switches := filepath.Join(dir, "quota.yaml"), filepath.Join(dir, "switches.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(policy, operated)
	c := boot.Embedded(filepath.Join(dir, "data"), policy)
	c.SwitchFile, c.LogLevel = switches, "error"
	s, err := boot.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	conn, err := grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	admin := quotav1.NewAdminServiceClient(conn)
	quota, err := client.Dial(t.Context(), s.GRPCAddr(), client.WithAgent("gw"), client.WithFirstWait(patience), client.WithMaxWait(patience), client.WithCloseWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	ask := func() client.Decision {
		return quota.Allow(t.Context(), client.Attribute{Name: "tenant", Value: "acme/web"})
	}
	eventually := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not within %s: %s", patience, what)
			}
		}
	}
	decided := func(allowed bool, reason client.Reason) func() bool {
		return func() bool { d := ask(); return d.Allowed == allowed && d.Reason == reason }
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually("the first decision", decided(true, client.ReasonLimit))

	_, err = admin.SetSwitches(t.Context(), &quotav1.SetSwitchesRequest{Switches: &quotav1.Switches{DeniedTenants: []string{"acme"}}})
	must(err)
	eventually("a tenant denied by the switch", decided(false, client.ReasonSwitch))
	_, err = admin.SetSwitches(t.Context(), &quotav1.SetSwitchesRequest{Switches: &quotav1.Switches{Mode: quotav1.Switches_MODE_ALLOW_ALL}})
	must(err)
	eventually("everything allowed by the switch", decided(true, client.ReasonSwitch))
	write(switches, "mode: normal\n")
	eventually("the switch file instead", decided(true, client.ReasonLimit))
	must(os.Remove(switches))
	eventually("the switch again", decided(true, client.ReasonSwitch))
	_, err = admin.SetSwitches(t.Context(), &quotav1.SetSwitchesRequest{Switches: &quotav1.Switches{}})
	must(err)
	eventually("no switch", decided(true, client.ReasonLimit))

	_, err = admin.SuspendTenant(t.Context(), &quotav1.SuspendTenantRequest{Id: "acme"})
	must(err)
	eventually("a descendant of a suspended tenant", decided(false, client.ReasonSuspended))
	_, err = admin.ResumeTenant(t.Context(), &quotav1.ResumeTenantRequest{Id: "acme"})
	must(err)
	eventually("a tenant that goes on", decided(true, client.ReasonLimit))

	tried := strings.Replace(operated, "rate: 1000/second, burst: 1000", "rate: 1/hour, burst: 1", 1)
	shadow, err := admin.ApplyPolicy(t.Context(), &quotav1.ApplyPolicyRequest{Document: tried, Shadow: true})
	must(err)
	wouldDeny := func() (n int64) {
		for _, trial := range quota.Counters().Trials {
			if trial.Version {
				n += trial.WouldDeny
			}
		}
		return n
	}
	eventually("a policy that is tried", func() bool {
		if d := ask(); !d.Allowed {
			t.Fatalf("denied while the policy is only tried: %+v", d)
		}
		return wouldDeny() >= 10
	})
	admitted := quota.Counters().Billed
	_, err = admin.ClearShadow(t.Context(), &quotav1.ClearShadowRequest{})
	must(err)
	closing, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(quota.Close(closing))
	final := quota.Counters()
	if final.Billed < admitted {
		t.Errorf("billed %d units, and %d before", final.Billed, admitted)
	}

	usage := quotav1.NewUsageServiceClient(conn)
	sum := func(version int64) (admitted, denied int64) {
		resp, err := usage.GetUsage(t.Context(), &quotav1.GetUsageRequest{By: quotav1.GetUsageRequest_BY_LIMIT, ShadowVersion: version})
		must(err)
		for _, r := range resp.Rows {
			if r.Limit == "requests" {
				admitted += r.Admitted
				denied += r.Denied
			}
		}
		return admitted, denied
	}
	if got, denied := sum(0); got != final.Billed || denied != 0 {
		t.Errorf("usage: %d admitted and %d denied, want the %d billed, and nobody denied by the limit", got, denied, final.Billed)
	}
	if got, denied := sum(shadow.Change.Version); got != 0 || denied < 10 {
		t.Errorf("the shadow's: %d admitted, %d denied; want nothing billed, and 10 or more that it would have denied", got, denied)
	}
}
