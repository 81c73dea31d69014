package quotactl

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/server/boot"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// An agent that said it booked more than the ledger has of its closed epoch fails the command; one of which all is there does not.
func TestReconcile(t *testing.T) {
	e := start(t, func(c *boot.Config) { c.FoldInterval = 20 * time.Millisecond })
	conn, err := grpc.NewClient(e.s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for agent, booked := range map[string]int64{"gw-1": 20, "gw-2": 15} {
		r := ledger.NewReport(agent, 1, 1, 0, []ledger.Row{{
			Slot: e.now.Truncate(ledger.DefaultSlot).Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Admitted: 15,
		}}, e.now.UnixMilli(), true)
		resp, err := quotav1.NewLeaseServiceClient(conn).Settle(t.Context(), &quotav1.SettleRequest{
			Reports: []*quotav1.Report{wire.ReportToProto(r)},
			Accounts: &quotav1.LeaseAccounts{Agent: agent, Epoch: 1, Number: 1, Limits: []*quotav1.LeaseAccount{{
				Limit: "requests", Spent: booked, Beyond: booked, Booked: booked,
			}}},
		})
		if err != nil || resp.Receipts[0].Status != quotav1.Receipt_STATUS_SETTLED {
			t.Fatalf("settle: %v, %v", resp, err)
		}
	}
	// More limits than any policy names are above what was granted at once; else the report is sent back for half a minute.
	var rows []ledger.Row
	for i := range ledger.MaxDrawnLimits + 1 {
		rows = append(rows, ledger.Row{Slot: e.now.Truncate(ledger.DefaultSlot).Unix(), Tenant: "acme", Limit: fmt.Sprintf("made-up-%04d", i), Meter: "requests", Version: 1, Admitted: 7})
	}
	r := ledger.NewReport("thief", 1, 1, 0, ledger.MergeRows(rows), e.now.UnixMilli(), false)
	resp, err := quotav1.NewLeaseServiceClient(conn).Settle(t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{wire.ReportToProto(r)}})
	if err != nil || resp.Receipts[0].Status != quotav1.Receipt_STATUS_SETTLED {
		t.Fatalf("settle: %v, %v", resp, err)
	}
	eventually(t, "what was never granted is named", func() bool {
		out, _, code := e.run("ledger", "reconcile", "-o", "csv", "--agent", "thief")
		return code == exitFailed && strings.Contains(out, "settled above granted: settled +7\n")
	})
	const header = "agent,epoch,limit,state,recorded,granted,spent,returned,expired,held,settled,differences\n"
	for _, c := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"--agent", "gw-2"}, header + "gw-2,1,requests,closed,0,0,15,0,0,0,15,not told: spent +15; beyond leases: spent +15\n", exitOK},
		{[]string{"--agent", "gw-1", "--epoch", "1"}, header + "gw-1,1,requests,closed,0,0,20,0,0,0,15,not told: spent +20; beyond leases: spent +20; missing: settled +5\n", exitFailed},
		{[]string{"--agent", "gw-1", "--epoch", "2"}, header, exitOK},
	} {
		out, errs, code := e.run(append([]string{"ledger", "reconcile", "-o", "csv"}, c.args...)...)
		if out != c.want || code != c.code {
			t.Errorf("%v: got exit %d, %q, %q, want %d and %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	if out, _, code := e.run("ledger", "reconcile"); code != exitFailed || !strings.Contains(out, "gw-1") || !strings.Contains(out, "gw-2") {
		t.Errorf("of all: got exit %d, %q", code, out)
	}
}
