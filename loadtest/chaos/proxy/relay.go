package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Misdeed is what a relay does to calls.
type Misdeed uint32

// Misdeeds; they may be joined. The last two break the product's promises on purpose:
// they are the controls of a run.
const (
	// Repeat sends calls again: at once beside the first, and up to two seconds later.
	Repeat Misdeed = 1 << iota
	// Reorder holds calls for up to 400 ms each, so that they overtake one another.
	Reorder
	// LoseAnswers has the server execute half of the calls and tells the agent that it did not.
	LoseAnswers
	// SettleTwice sends every report a second time as one of another epoch: settlement
	// without the guard that makes it happen once.
	SettleTwice
	// SettleNever acknowledges reports that no server has seen.
	SettleNever
)

const (
	repeatWithin  = 2 * time.Second
	reorderWithin = 400 * time.Millisecond
	// maxStray bounds the repeated calls under way; at it calls are not repeated.
	maxStray = 256
)

// Relay serves the lease service by passing every call on to one server.
type Relay struct {
	quotav1.UnimplementedLeaseServiceServer
	door   *door
	server *grpc.Server
	conn   *grpc.ClientConn
	api    quotav1.LeaseServiceClient

	does    atomic.Uint32
	stray   sync.WaitGroup
	slots   chan struct{}
	life    context.Context
	end     context.CancelFunc
	serving sync.WaitGroup
}

// NewRelay serves on loopback in place of the server at target.
func NewRelay(target string) (*Relay, error) {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxSettleBytes), grpc.MaxCallSendMsgSize(wire.MaxSettleBytes+1<<20)))
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("proxy: %w", err), conn.Close())
	}
	r := &Relay{
		door: &door{Listener: listener, target: target, open: make(map[net.Conn]bool)}, conn: conn, api: quotav1.NewLeaseServiceClient(conn),
		server: grpc.NewServer(grpc.MaxRecvMsgSize(wire.MaxSettleBytes+1<<20),
			grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true})),
		slots: make(chan struct{}, maxStray),
	}
	r.life, r.end = context.WithCancel(context.Background())
	quotav1.RegisterLeaseServiceServer(r.server, r)
	r.serving.Go(func() { _ = r.server.Serve(r.door) }) // it ends by Close
	r.serving.Go(func() { r.door.follow(r.life, conn) })
	return r, nil
}

// Addr is where the relay serves.
func (r *Relay) Addr() string { return r.door.Addr().String() }

// Do sets the relay's misdeeds from now on; with 0 it only passes calls on.
func (r *Relay) Do(m Misdeed) { r.does.Store(uint32(m)) }

func (r *Relay) is(m Misdeed) bool { return Misdeed(r.does.Load())&m != 0 }

// Close ends the relay and its calls.
func (r *Relay) Close() error {
	r.end()
	r.server.Stop()
	r.serving.Wait()
	r.stray.Wait()
	return r.conn.Close()
}

// again makes a call once more, at once or later; nobody hears its answer.
func (r *Relay) again(call func(context.Context)) {
	select {
	case r.slots <- struct{}{}:
	default:
		return
	}
	wait := time.Duration(0)
	if rand.IntN(2) == 0 {
		wait = rand.N(repeatWithin)
	}
	r.stray.Go(func() {
		defer func() { <-r.slots }()
		ctx, cancel := context.WithTimeout(r.life, wait+5*time.Second)
		defer cancel()
		if pause(ctx, wait) {
			call(ctx)
		}
	})
}

func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var errLost = status.Error(codes.Unavailable, "the answer was lost")

// around does the relay's misdeeds to a call.
func around[A, Q proto.Message](ctx context.Context, r *Relay, request Q, call func(context.Context, Q, ...grpc.CallOption) (A, error)) (A, error) {
	if r.is(Reorder) {
		pause(ctx, rand.N(reorderWithin))
	}
	if r.is(Repeat) {
		r.again(func(ctx context.Context) { _, _ = call(ctx, request) }) // its answer is nobody's
	}
	answer, err := call(ctx, request)
	if err == nil && r.is(LoseAnswers) && rand.IntN(2) == 0 {
		var none A
		return none, errLost
	}
	return answer, err
}

// Renew implements the lease service.
func (r *Relay) Renew(ctx context.Context, q *quotav1.RenewRequest) (*quotav1.RenewResponse, error) {
	return around(ctx, r, q, r.api.Renew)
}

// Settle implements the lease service.
func (r *Relay) Settle(ctx context.Context, q *quotav1.SettleRequest) (*quotav1.SettleResponse, error) {
	if r.is(SettleNever) {
		return acknowledge(q), nil
	}
	if r.is(SettleTwice) {
		for _, p := range q.GetReports() {
			if twin, err := Twin(p); err == nil {
				_, _ = r.api.Settle(ctx, twin) // the run must find it in the ledger
			}
		}
	}
	return around(ctx, r, q, r.api.Settle)
}

// Frontiers implements the lease service.
func (r *Relay) Frontiers(ctx context.Context, q *quotav1.FrontiersRequest) (*quotav1.FrontiersResponse, error) {
	return around(ctx, r, q, r.api.Frontiers)
}

// Twin is a report's usage once more, as the first report of an epoch of its own.
func Twin(p *quotav1.Report) (*quotav1.SettleRequest, error) {
	rows, err := ledger.DecodeRows(p.GetPayload())
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	twin := ledger.NewReport(p.GetAgent(), p.GetEpoch()+1_000_000_000+p.GetSeq(), 1, 0, rows, p.GetThroughMs(), true)
	return &quotav1.SettleRequest{Reports: []*quotav1.Report{wire.ReportToProto(twin)}}, nil
}

// acknowledge is the answer of a server that has everything.
func acknowledge(q *quotav1.SettleRequest) *quotav1.SettleResponse {
	a := &quotav1.SettleResponse{}
	for _, p := range q.GetReports() {
		a.Receipts = append(a.Receipts, &quotav1.Receipt{Status: quotav1.Receipt_STATUS_SETTLED, NextSeq: p.GetSeq() + 1, Total: p.GetTotalAfter()})
	}
	return a
}

// Watch implements the lease service.
func (r *Relay) Watch(q *quotav1.WatchRequest, to grpc.ServerStreamingServer[quotav1.WatchResponse]) error {
	from, err := r.api.Watch(to.Context(), q)
	if err != nil {
		return err
	}
	for {
		m, err := from.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := to.Send(m); err != nil {
			return err
		}
	}
}
