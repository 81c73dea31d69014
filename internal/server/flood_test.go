package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// One agent floods the ledger with usage of tenants, versions and meters that nobody knows. None of it ever becomes an
// entry, another agent's usage is settled with its first call, and so is that of tenants that this server never saw.
func TestAFloodOfTheUnknown(t *testing.T) {
	at := time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC)
	inWorld(t, at, "plans: {free: {limits: [{name: requests, by: [tenant], rate: 100/h, meter: requests}]}}\ntenants: [{id: acme, plan: free}]", func(t *testing.T, w *world) {
		admin, leases := w.admin(), quotav1.NewLeaseServiceClient(w.dial())
		row := func(tenant string, version int64, meter string) ledger.Row {
			return ledger.Row{Slot: at.Unix(), Tenant: tenant, Limit: "requests", Meter: meter, Version: version, Admitted: 1}
		}
		seqs := map[string]int64{}
		totals := map[string]int64{}
		settle := func(agent string, rows []ledger.Row) quotav1.Receipt_Status {
			t.Helper()
			r := ledger.NewReport(agent, 1, seqs[agent]+1, totals[agent], rows, time.Now().UnixMilli(), false)
			resp, err := leases.Settle(t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{wire.ReportToProto(r)}})
			if err != nil {
				t.Fatal(err)
			}
			status := resp.Receipts[0].Status
			if status == quotav1.Receipt_STATUS_SETTLED {
				seqs[agent]++
				totals[agent] = r.After
			}
			return status
		}
		const created, flood = 300, 2000
		honest := []ledger.Row{row("acme", 1, "requests")}
		for i := range created {
			id := fmt.Sprintf("new-%d", i)
			if _, err := admin.CreateTenant(t.Context(), &quotav1.CreateTenantRequest{Id: id, Plan: "free"}); err != nil {
				t.Fatal(err)
			}
			honest = append(honest, row(id, 1, "requests"))
		}
		floods := make([][]ledger.Row, 3)
		for i := range flood {
			floods[0] = append(floods[0], row(fmt.Sprintf("nobody-%d", i), 1, "requests"))
			floods[1] = append(floods[1], row("acme", int64(1000+i), "requests"))
			floods[2] = append(floods[2], row("acme", 1, fmt.Sprintf("meter-%d", i)))
		}
		const rounds = 3
		taken := int64(0)
		for round := range rounds {
			for _, rows := range floods {
				if settle("evil", rows) == quotav1.Receipt_STATUS_SETTLED {
					taken += int64(len(rows))
				}
			}
			if got := settle(fmt.Sprintf("good-%d", round), honest); got != quotav1.Receipt_STATUS_SETTLED {
				t.Errorf("round %d: honest usage is answered %v, want it settled at once", round, got)
			}
		}
		u, err := w.ledger.Usage(t.Context(), ledger.Query{By: ledger.ByTotal})
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(rounds * (created + 1)); len(u.Rows) != 1 || u.Rows[0].Admitted != want {
			t.Errorf("the ledger has %+v, want %d units", u.Rows, want)
		}
		if taken == 0 {
			t.Error("nothing of the flood was taken into quarantine, and its agent can never go on")
		}
		kept, err := w.ledger.Books().Quarantine(t.Context(), ledger.QuarantineQuery{N: 1000})
		if err != nil || len(kept) != 1000 {
			t.Errorf("quarantine has %d rows: %v", len(kept), err)
		}
		// What could not be looked up its agent keeps, and sends until it can.
		for tries := 0; settle("evil", floods[1]) != quotav1.Receipt_STATUS_SETTLED; tries++ {
			if tries == 1000 {
				t.Fatal("the flood of versions is never taken")
			}
			time.Sleep(5 * time.Second)
		}
	})
}
