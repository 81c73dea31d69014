package boot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// What a server granted is what its agents spent, gave back, let expire and hold: both
// count it, and once the agents have ended nothing is left to explain, whatever the
// kind of limit.
func TestReconciled(t *testing.T) {
	n := start(t, embedded(t, `
limits:
  - {name: all, rate: 400/second, burst: 100}
  - {name: window, by: [tenant], algorithm: fixed_window, rate: 700/second}
  - {name: sliding, by: [tenant], algorithm: sliding_window, rate: 900/second}
  - {name: in-flight, by: [tenant], algorithm: concurrency, slots: 50}
plans:
  free: {limits: [{name: requests, by: [tenant, user], rate: 60/second, burst: 30, meter: requests}]}
default_plan: free
`))
	books := quotav1.NewLedgerServiceClient(n.dial(""))
	reconcile := func() []*quotav1.Reconciled {
		t.Helper()
		var all []*quotav1.Reconciled
		req := &quotav1.ReconcileRequest{PageSize: 2}
		for {
			resp, err := books.Reconcile(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, resp.Limits...)
			if req.PageToken = resp.NextPageToken; req.PageToken == "" {
				return all
			}
		}
	}
	var gateways []*client.Client
	for i := range 2 {
		c, err := client.Dial(t.Context(), n.GRPCAddr(), client.WithAgent(fmt.Sprint("gw-", i)), client.WithFirstWait(patience),
			client.WithReportInterval(200*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		gateways = append(gateways, c)
	}
	end := time.Now().Add(4 * time.Second)
	var wg sync.WaitGroup
	const workers = 4 // of a gateway
	for i, c := range gateways {
		for user := range workers {
			wg.Go(func() {
				for time.Now().Before(end) {
					d := c.Allow(context.Background(), client.Attribute{Name: "tenant", Value: fmt.Sprint("t-", i)}, client.Attribute{Name: "user", Value: fmt.Sprint(user)})
					if d.Allowed {
						d.Done()
					}
					time.Sleep(2 * time.Millisecond)
				}
			})
		}
	}
	wg.Wait()
	for _, r := range reconcile() {
		for _, d := range r.Differences {
			if d.Fault {
				t.Errorf("while it is open: %s/%s: %v", r.Agent, r.Limit, d)
			}
		}
	}
	admitted, failed := map[string]int64{}, map[string]bool{}
	for i, c := range gateways {
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		admitted[fmt.Sprint("gw-", i)] = c.Counters().Billed
		failed[fmt.Sprint("gw-", i)] = c.Stats().RenewFailed > 0 // it took too long: the machine is busy
	}
	var limits []string
	for _, r := range reconcile() {
		limits = append(limits, r.Agent+"/"+r.Limit)
		for _, d := range r.Differences {
			switch {
			case d.Fault:
			case d.Name == ledger.Beyond: // a trickle that runs on while its renewal is under way
				continue
			case d.Name == ledger.LostReply && failed[r.Agent]:
				continue
			case d.Name == ledger.Untold && d.Units < 0 && d.Units >= -workers: // told as spent while another limit was yet to deny it, and put back
				continue
			}
			t.Errorf("%s/%s: %v", r.Agent, r.Limit, d)
		}
		s := r.Said
		if r.State != ledger.StateClosed || s.GetGranted() == 0 || s.GetSpent() == 0 || s.GetHeld() != 0 {
			t.Errorf("%s/%s: got %v, want a closed epoch that spent what it was granted, and holds nothing", r.Agent, r.Limit, r)
		}
		if r.Limit == "requests" && (r.Settled != admitted[r.Agent] || s.GetSpent() != admitted[r.Agent]) {
			t.Errorf("%s: settled %d and spent %d, want %d as it admitted", r.Agent, r.Settled, s.GetSpent(), admitted[r.Agent])
		}
		t.Logf("%s/%s: recorded %v, said %v, expired %d, settled %d, %v", r.Agent, r.Limit, r.Recorded, s, r.Expired, r.Settled, r.Differences)
	}
	if want := []string{"gw-0/all", "gw-0/requests", "gw-0/sliding", "gw-0/window", "gw-1/all", "gw-1/requests", "gw-1/sliding", "gw-1/window"}; !slices.Equal(limits, want) {
		t.Errorf("reconciled %v, want %v", limits, want)
	}
	resp, err := http.Get("http://" + n.HTTPAddr() + "/v1/ledger/reconciliation?agent=gw-1&differing=false")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	var rest struct{ Limits []any }
	if err == nil {
		err = json.Unmarshal(body, &rest)
	}
	if err != nil || len(rest.Limits) != 4 {
		t.Errorf("by REST: got %s, %v, want the four limits of gw-1", body, err)
	}
}
