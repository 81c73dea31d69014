package boot_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/testenv"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const monthlyText = `
plans:
  p:
    limits:
      - {name: calls, algorithm: fixed_window, rate: 2000/month, meter: calls}
default_plan: p
`

// patient is for an agent whose requests are counted: none may be denied because an answer was late.
var patient = []client.Option{client.WithFirstWait(patience), client.WithMaxWait(patience)}

func (n *node) agent(id string, options ...client.Option) *client.Client {
	n.t.Helper()
	c, err := client.Dial(n.t.Context(), n.GRPCAddr(), append([]client.Option{client.WithAgent(id), client.WithCloseWait(patience)}, options...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close(n.t.Context()) })
	return c
}

// spent is how many of n requests of acme are admitted.
func spent(ctx context.Context, n int, clients ...*client.Client) (admitted int64) {
	for range n {
		for _, c := range clients {
			if c.Allow(ctx, client.Tenant("acme")).Allowed {
				admitted++
			}
		}
	}
	return admitted
}

// spends has n requests of acme admitted by each client, and returns how many that is. One that is denied is asked again:
// on a busy machine an agent may take its server for lost.
func (n *node) spends(requests int, clients ...*client.Client) (admitted int64) {
	n.t.Helper()
	for range requests {
		for _, c := range clients {
			eventually(n.t, "a request far below the quota is admitted", func() bool { return spent(n.t.Context(), 1, c) == 1 })
			admitted++
		}
	}
	return admitted
}

// holds makes an agent that takes a lease of acme's calls, for that many requests that wait, and is not heard of
// again. It returns its tokens.
func (n *node) holds(id string, waiting int64) int64 {
	n.t.Helper()
	resp, err := n.leases().Renew(n.t.Context(), &quotav1.RenewRequest{Agent: id, Epoch: 1, Renewals: []*quotav1.Renewal{
		{Limit: "calls", Tenant: "acme", Number: 1, Began: 1, Waiting: waiting},
	}})
	if err != nil {
		n.t.Fatal(err)
	}
	if got := resp.Grants[0].Tokens; got < waiting {
		n.t.Fatalf("%s got %d tokens, want %d or more", id, got, waiting)
	}
	return resp.Grants[0].Tokens
}

// settles is the first report of an agent that holds.
func (n *node) settles(id string, admitted int64) {
	n.t.Helper()
	now := time.Now()
	row := ledger.Row{Slot: now.Truncate(5 * time.Minute).Unix(), Tenant: "acme", Limit: "calls", Meter: "calls", Version: 1, Admitted: admitted}
	report := wire.ReportToProto(ledger.NewReport(id, 1, 1, 0, []ledger.Row{row}, now.UnixMilli(), false))
	if _, err := n.leases().Settle(n.t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{report}}); err != nil {
		n.t.Fatal(err)
	}
}

// metric is the sum of a metric's series whose line begins so.
func (n *node) metric(series string) (sum float64) {
	n.t.Helper()
	_, body := n.get("/metrics")
	for line := range strings.Lines(body) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, series) {
			sum += number(n.t, value)
		}
	}
	return sum
}

// nearMonthsEnd waits for the next month where this one may end before a test that needs it does: within three minutes.
func nearMonthsEnd(t *testing.T) {
	t.Helper()
	now := time.Now().UTC()
	end := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	if left := time.Until(end); left < 3*time.Minute {
		time.Sleep(left)
	}
}

// Redis forgets a month's quota of which most is used, by agents that have settled and gone, and by others that hold
// leases. Without the ledger the quota would be there once more. With it all agents together have
// no more than the quota and epsilon of it, and no less than the quota.
func TestAForgottenQuotaIsRebuiltFromTheLedger(t *testing.T) {
	t.Parallel() // it waits for leases to end
	nearMonthsEnd(t)
	cluster := testenv.SteadyRedis(t)
	c := production(t, testenv.Postgres(t))
	c.LeaseStore = "redis://" + strings.Join(cluster.Addrs(), ",") + "?prefix=monthly:"
	c.Policy = file(t, monthlyText)
	n := start(t, c)
	n.waitReady()
	gone, stays := []*client.Client{n.agent("gw-0", patient...), n.agent("gw-1", patient...)}, []*client.Client{n.agent("gw-2", patient...), n.agent("gw-3", patient...)}
	total := n.spends(300, gone...)
	for _, c := range gone {
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	late := n.holds("late", 200)
	total += n.spends(300, stays...) + late
	err := cluster.Client().ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() })
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss is counted", func() bool {
		return n.metric(`quota_server_lease_store_losses_total{noticed="emptied"}`) == 3
	})
	agents := append(stays, n.agent("gw-4"))
	for lost := time.Now(); time.Since(lost) < 13*time.Second; time.Sleep(20 * time.Millisecond) {
		total += spent(t.Context(), 5, agents...)
	}
	if total > 2100 {
		t.Errorf("admitted %d in all before an agent settled what it had, want 2100 at most", total)
	}
	n.settles("late", late)
	// At least once a minute an agent asks about a quota that is used up: until all is admitted, and then for what may
	// be too much.
	for idle := time.Now(); time.Since(idle) < 5*time.Second || total < 2000 && time.Since(idle) < 90*time.Second; {
		if got := spent(t.Context(), 5, agents...); got > 0 {
			total += got
			idle = time.Now()
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("admitted %d of 2000; the ledger was asked %v times, %v leases were declared again", total,
		n.metric("quota_server_ledger_figures_total"), n.metric("quota_server_healed_leases_total"))
	if total < 2000 || total > 2100 {
		t.Errorf("admitted %d in all, want 2000 to 2100", total)
	}
	if n.metric(`quota_server_ledger_figures_total{result="known"}`) == 0 {
		t.Error("the ledger was not asked")
	}
}

// A month's quota on Redis, used up by ten gateways that all ask at once, is used to its last unit and no further,
// however busy the machine is: what a gateway that is held up does not spend comes back.
func TestAQuotaOnRedisIsUsedToItsLastUnit(t *testing.T) {
	nearMonthsEnd(t)
	cluster := testenv.Redis(t)
	c := embedded(t, monthlyText)
	c.LeaseStore = "redis://" + strings.Join(cluster.Addrs(), ",") + "?prefix=" + cluster.Prefix
	n := start(t, c)
	n.waitReady()
	var total atomic.Int64
	var driving sync.WaitGroup
	stop := make(chan struct{})
	for i := range 10 {
		gateway := n.agent(fmt.Sprint("gw-", i))
		driving.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					total.Add(spent(t.Context(), 1, gateway))
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	deadline := time.Now().Add(90 * time.Second) // at least once a minute an agent asks about a quota that is used up
	for total.Load() < 2000 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(time.Second)
	close(stop)
	driving.Wait()
	if got := total.Load(); got != 2000 {
		t.Errorf("admitted %d of 2000", got)
	}
}

// An embedded server restarts: its leases were in memory, and the quota's use is in the ledger.
func TestARestartKeepsTheQuota(t *testing.T) {
	nearMonthsEnd(t)
	c := embedded(t, monthlyText)
	n := start(t, c)
	a := n.agent("gw-0", patient...)
	n.spends(1500, a)
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = start(t, c)
	b := n.agent("gw-1", patient...)
	n.spends(500, b)
	if got := spent(t.Context(), 500, b); got != 0 {
		t.Errorf("after the restart %d were admitted beside the 500 that were left", got)
	}
}

// An agent is gone for good with a part of a quota that is used up otherwise. What it did not spend is there again
// once it is declared lost and the ledger is complete past its lease.
func TestWhatALostAgentDidNotSpendComesBack(t *testing.T) {
	t.Parallel() // it waits for the minute after which an agent asks again
	nearMonthsEnd(t)
	n := start(t, embedded(t, monthlyText))
	had := n.holds("lost", 400)
	n.settles("lost", 150)
	a := n.agent("gw-0", patient...)
	total := spent(t.Context(), 3000, a)
	if total != 2000-had {
		t.Errorf("the others got %d, want all but the lost agent's %d", total, had)
	}
	asked := func() bool {
		total += spent(t.Context(), 1, a)
		return total == 2000-150
	}
	time.Sleep(3 * time.Second)
	if asked(); total != 2000-had {
		t.Errorf("the others got %d while the ledger waits for the lost agent, want %d", total, 2000-had)
	}
	if _, err := quotav1.NewLedgerServiceClient(n.dial(n.key)).DeclareLost(t.Context(), &quotav1.DeclareLostRequest{Agent: "lost", Epoch: 1, Reason: "its machine burnt"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what was not spent is there again", asked, func() any { return total })
	if got := spent(t.Context(), 100, a); got != 0 {
		t.Errorf("%d more were admitted", got)
	}
}

func number(t testing.TB, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
