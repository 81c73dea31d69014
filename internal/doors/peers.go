package doors

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	// maxPeers bounds the connections to other agents. The one that was used longest ago gives way.
	maxPeers = 64
	// peerWait bounds a call to another agent.
	peerWait = 2 * time.Second
	// peerIdle is how long a connection stays that nobody uses.
	peerIdle = time.Minute
	// peerPause is the longest pause before another attempt to connect.
	peerPause = time.Second
	// passedOn is the metadata of a call that an agent passed on. It is not passed on again.
	passedOn = "quota-passed-on"
)

// peers are the agents that calls are passed on to, by address. Only addresses of ids that were sealed come here. It is
// safe for concurrent use.
type peers struct {
	dial func(ctx context.Context, address string) (net.Conn, error) // nil for TCP

	mu     sync.Mutex
	conns  map[string]*peer
	turn   int64 // grows with each call
	closed bool
}

// peer is a connection to another agent.
type peer struct {
	conn  *grpc.ClientConn
	calls int   // under way
	last  int64 // turn
}

func newPeers() *peers { return &peers{conns: make(map[string]*peer)} }

// use returns a connection, for a call that ends with done.
func (p *peers) use(address string) (conn *grpc.ClientConn, done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, refuse(codes.Unavailable, "this agent is ending")
	}
	at := p.conns[address]
	if at == nil {
		if len(p.conns) >= maxPeers && !p.giveWayLocked() {
			return nil, nil, refuse(codes.Unavailable, "calls to %d other agents are under way, and there may be no more", maxPeers)
		}
		opts := []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(peerIdle), grpc.WithNoProxy(),
			// An agent that was restarted is reached a second later, and not after gRPC's two minutes.
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: peerWait, Backoff: backoff.Config{
				BaseDelay: peerPause / 10, Multiplier: 2, Jitter: 0.2, MaxDelay: peerPause,
			}}),
		}
		if p.dial != nil {
			opts = append(opts, grpc.WithContextDialer(p.dial))
		}
		conn, err := grpc.NewClient("passthrough:///"+address, opts...)
		if err != nil {
			return nil, nil, fmt.Errorf("doors: %w", err)
		}
		at = &peer{conn: conn}
		p.conns[address] = at
	}
	p.turn++
	at.calls++
	at.last = p.turn
	return at.conn, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		at.calls--
	}, nil
}

// giveWayLocked closes the connection that was used longest ago; false where all are in use.
func (p *peers) giveWayLocked() bool {
	oldest := ""
	for address, at := range p.conns {
		if at.calls == 0 && (oldest == "" || at.last < p.conns[oldest].last) {
			oldest = address
		}
	}
	if oldest == "" {
		return false
	}
	_ = p.conns[oldest].conn.Close() // nobody uses it
	delete(p.conns, oldest)
	return true
}

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, at := range p.conns {
		_ = at.conn.Close() // what is under way ends with an error of its own
	}
	p.conns = nil
}

// call passes a call on, unless it was passed on already.
func (p *peers) call(ctx context.Context, address string, f func(context.Context, quotav1.DecisionServiceClient) error) error {
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get(passedOn)) > 0 {
		return refuse(codes.NotFound, "the agent at %s has this reservation, and another agent passed the call on here", address)
	}
	conn, done, err := p.use(address)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, peerWait)
	defer cancel()
	err = f(metadata.AppendToOutgoingContext(ctx, passedOn, "1"), quotav1.NewDecisionServiceClient(conn))
	switch s := status.Convert(err); s.Code() {
	case codes.OK:
		return nil
	case codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition:
		return refuse(s.Code(), "%s", s.Message())
	default:
		return refuse(codes.Unavailable, "the agent at %s has this reservation, and does not answer: %s", address, s.Message())
	}
}

func (p *peers) extend(ctx context.Context, address string, m *quotav1.ExtendRequest) (answer *quotav1.ExtendResponse, err error) {
	err = p.call(ctx, address, func(ctx context.Context, c quotav1.DecisionServiceClient) (err error) {
		answer, err = c.Extend(ctx, m)
		return err
	})
	return answer, err
}

func (p *peers) commit(ctx context.Context, address string, m *quotav1.CommitRequest) (answer *quotav1.CommitResponse, err error) {
	err = p.call(ctx, address, func(ctx context.Context, c quotav1.DecisionServiceClient) (err error) {
		answer, err = c.Commit(ctx, m)
		return err
	})
	return answer, err
}
