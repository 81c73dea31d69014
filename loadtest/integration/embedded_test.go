package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	kills         = 20
	killedAgents  = 8
	killedTenants = 4
)

// The embedded server is killed twenty times while agents settle and it folds: whatever
// it acknowledged is there when it comes back, and nothing is there twice.
func TestEmbeddedServerKilled(t *testing.T) {
	server, dir := program(t, "quota-server"), filepath.Join(t.TempDir(), "data")
	grpcAddr, httpAddr := address(t), address(t)
	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	agents := make([]*settling, killedAgents)
	for i := range agents {
		agents[i] = &settling{api: quotav1.NewLeaseServiceClient(conn), id: fmt.Sprintf("agent-%d", i)}
	}
	rng := rand.New(rand.NewPCG(1, 9))
	for n := range kills + 1 {
		p := start(t, fmt.Sprintf("server-%d", n), server, "--data-dir", dir, "--grpc-addr", grpcAddr, "--http-addr", httpAddr, "--fold-interval", "20ms")
		p.waitReady(httpAddr, patience)
		ctx, stop := context.WithCancel(t.Context())
		var sending sync.WaitGroup
		for _, a := range agents {
			sending.Go(func() { a.send(ctx, t) })
		}
		before := acknowledged(agents)
		until(t, "reports are settled", patience, p, func() bool { return acknowledged(agents) > before+50 })
		if n < kills {
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
			p.kill() // in the middle of whatever it does
		}
		stop()
		sending.Wait()
		if n == kills {
			held(t, conn, agents)
			p.terminate(patience)
		}
	}
	t.Logf("%d kills, %d reports acknowledged", kills, acknowledged(agents))
}

// settling is an agent that sends one report at a time until it is acknowledged.
type settling struct {
	api quotav1.LeaseServiceClient
	id  string

	mu       sync.Mutex
	seq      int64 // of the last one acknowledged
	total    int64
	tenants  [killedTenants]int64 // units acknowledged
	underway *ledger.Report
	units    int64
}

func (a *settling) send(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		if a.underway == nil { // else it was under way when the server was killed: the same again
			a.units = 1 + (a.seq % 7)
			var rows []ledger.Row
			for n := range killedTenants {
				rows = append(rows, ledger.Row{
					Slot: time.Now().Truncate(ledger.DefaultSlot).Unix(), Tenant: fmt.Sprintf("tenant-%d", n),
					Limit: "requests", Meter: "requests", Version: 1, Admitted: a.units + int64(n),
				})
			}
			r := ledger.NewReport(a.id, 1, a.seq+1, a.total, rows, time.Now().UnixMilli(), false)
			a.underway = &r
		}
		resp, err := a.api.Settle(ctx, &quotav1.SettleRequest{Reports: []*quotav1.Report{wire.ReportToProto(*a.underway)}}, grpc.WaitForReady(true))
		if err != nil {
			continue
		}
		switch s := resp.Receipts[0].Status; s {
		case quotav1.Receipt_STATUS_SETTLED, quotav1.Receipt_STATUS_ALREADY:
			a.mu.Lock()
			a.seq, a.total = a.underway.Seq, a.underway.After
			for n := range a.tenants {
				a.tenants[n] += a.units + int64(n)
			}
			a.underway = nil
			a.mu.Unlock()
		case quotav1.Receipt_STATUS_UNAVAILABLE:
		default:
			t.Errorf("%s report %d: %v", a.id, a.underway.Seq, resp.Receipts[0])
			return
		}
	}
}

func acknowledged(agents []*settling) (n int64) {
	for _, a := range agents {
		a.mu.Lock()
		n += a.seq
		a.mu.Unlock()
	}
	return n
}

// held holds the ledger to what was acknowledged, and to itself. A report whose call was
// cut short at the very end may be there as well.
func held(t *testing.T, conn *grpc.ClientConn, agents []*settling) {
	t.Helper()
	for n := range killedTenants {
		var least, most int64
		for _, a := range agents {
			least += a.tenants[n]
			if a.underway != nil {
				most += a.units + int64(n)
			}
		}
		most += least
		resp, err := quotav1.NewUsageServiceClient(conn).GetUsage(t.Context(), &quotav1.GetUsageRequest{Tenant: fmt.Sprintf("tenant-%d", n)})
		if err != nil {
			t.Fatal(err)
		}
		var got int64
		for _, r := range resp.Rows {
			got += r.Admitted
		}
		if got < least || got > most {
			t.Errorf("tenant-%d: the ledger has %d units, want %d acknowledged, and at most %d", n, got, least, most)
		}
	}
	stream, err := quotav1.NewLedgerServiceClient(conn).Verify(t.Context(), &quotav1.VerifyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.Result != nil {
			for _, f := range m.Result.Faults {
				t.Errorf("verify: %v", f)
			}
			return
		}
	}
}
