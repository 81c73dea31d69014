package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func bearing(ctx context.Context, secret string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+secret)
}

// An agent that lags holds a tenant's period open as long as its key is good: two minutes after it was revoked, the
// period closes. A rotation takes no weight from an agent that uses the successor.
func TestARevokedKeyHoldsNoPeriodOpen(t *testing.T) {
	text := "plans: {p: {limits: [{name: requests, rate: 100/day, meter: requests}], price: {monthly: 1.00 USD}}}\ntenants: [{id: acme, plan: p}]\n"
	inBothWorlds(t, time.Date(2026, 10, 31, 23, 50, 0, 0, time.UTC), text, func(t *testing.T, w *world) {
		admin, leases := w.admin(), quotav1.NewLeaseServiceClient(w.dial())
		statements := quotav1.NewStatementServiceClient(w.dial())
		first, err := admin.CreateKey(t.Context(), &quotav1.CreateKeyRequest{Role: "admin"})
		if err != nil {
			t.Fatal(err)
		}
		ann := bearing(t.Context(), first.Secret)
		create := func(agent string) *quotav1.CreateKeyResponse {
			t.Helper()
			k, err := admin.CreateKey(ann, &quotav1.CreateKeyRequest{Role: "agent", Agent: agent})
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		gone, moved := create("gone"), create("moved")
		seqs := map[string]int64{}
		report := func(agent, secret string, through time.Time) error {
			t.Helper()
			seqs[agent]++
			r := ledger.NewReport(agent, 1, seqs[agent], seqs[agent]-1, []ledger.Row{{Slot: time.Date(2026, 10, 31, 23, 50, 0, 0, time.UTC).Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Plan: "p", Admitted: 1}}, through.UnixMilli(), false)
			resp, err := leases.Settle(bearing(t.Context(), secret), &quotav1.SettleRequest{Reports: []*quotav1.Report{wire.ReportToProto(r)}})
			if err == nil && resp.Receipts[0].Status != quotav1.Receipt_STATUS_SETTLED {
				t.Fatalf("%s: %v", agent, resp.Receipts[0])
			}
			return err
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(report("gone", gone.Secret, time.Now()))
		must(report("moved", moved.Secret, time.Now()))
		time.Sleep(15 * time.Minute)
		held := func(want string) {
			t.Helper()
			resp, err := statements.CloseDue(ann, &quotav1.CloseDueRequest{DryRun: true})
			var got string
			if err == nil && len(resp.Refused) == 1 {
				_, rest, _ := strings.Cut(resp.Refused[0].Reason, "held back by ")
				got, _, _ = strings.Cut(rest, " (")
			}
			if err != nil || got != want {
				t.Errorf("held back by %q, want %q: %v, %v", got, want, resp, err)
			}
		}
		held("gone, moved")
		_, err = admin.RevokeKey(ann, &quotav1.RevokeKeyRequest{Id: gone.Key.Id})
		must(err)
		successor, err := admin.RotateKey(ann, &quotav1.RotateKeyRequest{Id: moved.Key.Id, OverlapMs: (10 * time.Minute).Milliseconds()})
		must(err)
		time.Sleep(2*time.Minute + time.Second)
		held("moved")
		agents, err := admin.ListAgents(ann, &quotav1.ListAgentsRequest{})
		if err != nil || len(agents.Agents) != 2 || agents.Agents[0].State != ledger.StateLost || agents.Agents[0].Key != gone.Key.Id ||
			!strings.Contains(agents.Agents[0].Reason, "its key "+gone.Key.Id+" was revoked at") || agents.Agents[1].State != ledger.StateOpen || agents.Agents[1].Key != moved.Key.Id {
			t.Errorf("agents: %v, %v, want the first lost for its key", agents, err)
		}
		must(report("moved", successor.Secret, time.Now().Add(-15*time.Minute)))
		time.Sleep(15 * time.Minute)
		held("moved")
		if report("moved", moved.Secret, time.Now()) == nil {
			t.Error("the old key is still good")
		}
		seqs["moved"]--
		// It was not gone: what it brings under another key is settled, and counts on the period while that is open.
		must(report("gone", create("gone").Secret, time.Now().Add(-30*time.Minute)))
		held("gone, moved")
		if got := w.settled(ledger.Query{}); got["requests"].Admitted != 4 {
			t.Errorf("settled %+v, want 4 units", got)
		}
	})
}
