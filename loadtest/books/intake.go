package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// sender is an agent: its reports are made before the clock starts.
type sender struct {
	reports []*quotav1.Report
	rows    int64
	bytes   int64
	seq     int64
	total   int64
	id      string
}

// make adds a report of the keys [first, last). perTenant keys belong to a tenant, each with some units of the slot.
func (s *sender) make(slot time.Time, first, last, perTenant int) {
	rows := make([]ledger.Row, 0, last-first)
	for k := first; k < last; k++ {
		rows = append(rows, ledger.Row{
			Slot: slot.Unix(), Tenant: fmt.Sprintf("tenant-%05d", k/perTenant), Limit: "requests", Meter: "requests", Version: 1,
			Attributes: fmt.Sprintf("user=user-%d", k%perTenant), Admitted: int64(k%500 + 1), Denied: int64(k % 3),
		})
	}
	s.seq++
	r := ledger.NewReport(s.id, 1, s.seq, s.total, rows, slot.UnixMilli(), false)
	s.total = r.After
	s.rows += int64(len(rows))
	s.bytes += int64(len(r.Payload))
	s.reports = append(s.reports, wire.ReportToProto(r))
}

var errRefused = errors.New("a report was not settled")

// send settles reports, one report and one call at a time, as the SDK does.
func (s *sender) send(ctx context.Context, conn *grpc.ClientConn, reports []*quotav1.Report) error {
	api := quotav1.NewLeaseServiceClient(conn)
	for _, r := range reports {
		for {
			resp, err := api.Settle(ctx, &quotav1.SettleRequest{Reports: []*quotav1.Report{r}})
			if err == nil && resp.Receipts[0].Status != quotav1.Receipt_STATUS_SETTLED {
				return fmt.Errorf("%w: %s %d: %v", errRefused, r.Agent, r.Seq, resp.Receipts[0])
			}
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond) // it is to back off
		}
	}
	return nil
}

// shape says which senders report which keys.
type shape struct {
	what      string
	agents    int
	perTenant int                            // keys of a tenant
	of        func(agent int) (from, to int) // an agent's keys
	times     int                            // as many rounds, so that there is enough to measure
}

var shapes = []shape{
	{"100 agents share 10,000 keys", 100, 10, func(int) (int, int) { return 0, 10_000 }, 1},
	{"100 agents, 100 keys of its own each", 100, 10, func(n int) (int, int) { return n * 100, n*100 + 100 }, 20},
	{"100 agents, 2,000 keys of its own each", 100, 10, func(n int) (int, int) { return n * 2000, n*2000 + 2000 }, 1},
}

// intake measures rows from gRPC to the roll-ups.
func intake(ctx context.Context, o options) error {
	for _, shape := range shapes {
		if err := shape.measure(ctx, o.rounds); err != nil {
			return fmt.Errorf("%s: %w", shape.what, err)
		}
	}
	return nil
}

func (sh *shape) measure(ctx context.Context, rounds int) (err error) {
	if rounds == 0 {
		rounds = 10
	}
	rounds *= sh.times
	s, err := open(ctx, time.Second)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	senders := sh.senders(rounds)
	var rows, bytes int64
	for _, a := range senders {
		rows, bytes = rows+a.rows, bytes+a.bytes
	}
	own, postgres, err := s.cpu(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := s.settle(ctx, senders); err != nil {
		return err
	}
	settled := time.Since(begun)
	if err := s.folded(ctx); err != nil {
		return err
	}
	took := time.Since(begun)
	ownAfter, postgresAfter, err := s.cpu(ctx)
	if err != nil {
		return err
	}
	blocks, err := s.ask(ctx, "SELECT count(*) FROM blocks")
	if err != nil {
		return err
	}
	entries, err := s.ask(ctx, "SELECT count(*) FROM entries")
	if err != nil {
		return err
	}
	if kept, err := s.ask(ctx, "SELECT count(*) FROM quarantine"); err != nil || kept > 0 {
		return fmt.Errorf("%w: %d rows are in quarantine, %w", errRefused, kept, err)
	}
	perRow := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(rows) }
	g, p := perRow(ownAfter-own), perRow(postgresAfter-postgres)
	fmt.Printf("%s: %d rows in %d reports, %.1f bytes a row as sent\n", sh.what, rows, len(senders)*rounds, float64(bytes)/float64(rows))
	fmt.Printf("  acknowledged after %.2f s, folded after %.2f s: %.0f rows/s (load average %s)\n",
		settled.Seconds(), took.Seconds(), float64(rows)/took.Seconds(), load())
	fmt.Printf("  processor time a row: %.2f µs senders and server, %.2f µs Postgres: %.0f rows/s on two cores of its own\n", g, p, 2e6/(g+p))
	fmt.Printf("  %d blocks, %d entries: %.1f rows an entry\n", blocks, entries, float64(rows)/float64(entries))
	return nil
}

func (sh *shape) senders(rounds int) []*sender {
	slot := time.Now().Truncate(ledger.DefaultSlot)
	senders := make([]*sender, sh.agents)
	for i := range senders {
		senders[i] = &sender{id: fmt.Sprintf("agent-%03d", i)}
		from, to := sh.of(i)
		for range rounds {
			senders[i].make(slot, from, to, sh.perTenant)
		}
	}
	return senders
}

// connect dials a few connections. hangUp closes them.
func (s *site) connect() (conns []*grpc.ClientConn, hangUp func(), err error) {
	hangUp = func() {
		for _, c := range conns {
			_ = c.Close() // nothing is under way
		}
	}
	for range 4 {
		conn, err := s.dial()
		if err != nil {
			hangUp()
			return nil, nil, err
		}
		conns = append(conns, conn)
	}
	return conns, hangUp, nil
}

// settle sends everything: each sender on its own.
func (s *site) settle(ctx context.Context, senders []*sender) error {
	conns, hangUp, err := s.connect()
	if err != nil {
		return err
	}
	defer hangUp()
	errs := make([]error, len(senders))
	var wg sync.WaitGroup
	for i, a := range senders {
		wg.Go(func() { errs[i] = a.send(ctx, conns[i%len(conns)], a.reports) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
