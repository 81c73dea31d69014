// Package agentclient asks a quota-agent for each decision, over its socket. It is for processes that are many or
// short-lived, and cannot each have leases. The agent reports and settles the units that a Client admits.
//
// Read agentclient.go first; line.go has the connection, waiting.go the questions that wait for their answers, and
// reserve.go reservations.
package agentclient

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/connect"
	"github.com/f4ee788f/quota/internal/core/target"
	"github.com/f4ee788f/quota/pkg/client"
)

// Client asks a quota-agent for each decision, over one connection that all callers share. It has no leases, counts
// nothing and reports nothing: the agent does. It is safe for concurrent use.
//
// One message at a time is under way. Requests asked meanwhile wait for its answer, some tens of microseconds, and then
// go in one message. So the more callers there are, the less each decision costs. A request that has to wait for the
// server is answered by itself, and holds up no other.
//
// While the agent is away WithFailureMode decides. A request that was under way when the connection broke may have been
// admitted by the agent, and billed: it is not asked again.
type Client struct {
	to     string
	cfg    config
	log    *slog.Logger
	conn   *grpc.ClientConn // with TLS; else each line has its own connection
	calls  *grpc.ClientConn // of reservations: conn, or one that is opened when first used
	cancel context.CancelFunc
	life   sync.WaitGroup // what Dial started
	first  chan struct{}  // closed, by tried, when the agent was reached or could not be
	tried  func()
	wake   chan struct{} // the writer has something to send

	mu      sync.Mutex
	state   contact
	asked   map[uint64]*question // that have no answer yet, by id
	queue   []*question          // of these, those not sent yet, the oldest first; and abandoned ones
	last    uint64
	flying  bool   // a message is not answered yet
	ending  bool   // the agent said that it is closing, and the line's end is still to come
	since   int64  // the tick of either
	leave   func() // hangs up the line; nil where gRPC looks after the connection
	tick    int64  // rises overdueTicks times in the longest wait
	stats   Stats
	drained chan struct{} // closed by drain once the client is closed and nothing waits
	drain   func()

	free sync.Pool // of *question
}

// contact is how the agent can be asked.
type contact uint8

const (
	there  contact = iota // requests wait, for their answers or for the next line
	away                  // requests are decided by WithFailureMode
	closed                // requests are denied
)

// Stats is a snapshot of counts since Dial.
type Stats struct {
	Asked            int64     // requests
	Messages         int64     // that carried them
	Unknown          int64     // requests decided by WithFailureMode
	Deadlined        int64     // requests denied with client.ReasonDeadline, without an answer
	Overloaded       int64     // requests denied with client.ReasonOverloaded, for too many waited here
	Unaccounted      int64     // units admitted that no ledger will ever show: client.FailOpen
	Away             bool      // the agent is out of contact
	Unreachable      string    // why; empty while it is there
	UnreachableSince time.Time // when it went away; zero while it is there
}

// Dial returns a client of the quota-agent at an address: unix:PATH or host:port, which is the agent's --grpc-addr. It
// waits up to WithFirstWait for the agent, and succeeds without it. It fails, with client.ErrOption, only for invalid
// addresses and options. ctx bounds the wait, not the client's life. The caller must call Close.
func Dial(ctx context.Context, to string, opts ...Option) (*Client, error) {
	cfg := config{
		firstWait: client.DefaultFirstWait, maxWait: client.DefaultMaxWait, maxWaiting: client.DefaultMaxWaiting,
	}
	for _, o := range opts {
		o(&cfg)
	}
	if cfg.logger == nil {
		cfg.logger = connect.Logger()
	}
	if cfg.maxWait <= 0 || cfg.firstWait < 0 || cfg.maxWaiting < 0 || cfg.failure > client.FailOpen {
		return nil, fmt.Errorf("%w: a wait, a number of requests or a failure mode is out of range", client.ErrOption)
	}
	t := &Client{
		to: to, cfg: cfg, log: cfg.logger.With("quota_agent", to),
		first: make(chan struct{}), wake: make(chan struct{}, 1),
		asked: make(map[uint64]*question), drained: make(chan struct{}),
	}
	t.tried = sync.OnceFunc(func() { close(t.first) })
	t.drain = sync.OnceFunc(func() { close(t.drained) })
	err := target.Check(to)
	if cfg.connect.TLS != nil {
		t.conn, err = cfg.connect.Servers(to,
			// Windows that are never waited for: without them gRPC measures the line with a ping for each message.
			grpc.WithStaticStreamWindowSize(4*ask.MaxBytes), grpc.WithStaticConnWindowSize(4*ask.MaxBytes),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(ask.Codec{})))
	}
	if t.calls = t.conn; t.calls == nil && err == nil {
		t.calls, err = cfg.connect.Servers(to, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(ask.Codec{})))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", client.ErrOption, err)
	}
	life, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	t.life.Go(func() { t.run(life) })
	t.life.Go(func() { t.watch(life) })
	if cfg.firstWait > 0 {
		wait, cancel := context.WithTimeout(ctx, cfg.firstWait)
		defer cancel()
		select {
		case <-t.first:
		case <-wait.Done():
		}
	}
	return t, nil
}

// Allow asks for one unit; see AllowN.
func (t *Client) Allow(ctx context.Context, attributes ...client.Attribute) client.Decision {
	return t.AllowN(ctx, 1, attributes...)
}

// AllowN has the agent decide a request that costs n units; see client.Client.AllowN. It waits no longer than ctx and
// WithMaxWait. The attributes are not kept. More than 32 of them are denied with client.ReasonInvalid.
func (t *Client) AllowN(ctx context.Context, n int64, attributes ...client.Attribute) client.Decision {
	return t.Decide(ctx, client.Request{Units: n, Attributes: attributes})
}

// Decide has the agent decide a request that may have several costs, as AllowN does; see client.Client.Decide.
func (t *Client) Decide(ctx context.Context, r client.Request) client.Decision {
	wait := t.cfg.maxWait
	if at, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(at), time.Microsecond))
	}
	q := t.question(r.Units, r.Costs, wait, r.Attributes)
	if d, asked := t.ask(q); !asked {
		t.release(q)
		return d
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		if t.abandon(q) {
			return inASecond(client.ReasonDeadline)
		}
		<-q.done
	}
	d := q.decision
	t.release(q)
	return d
}

// Stats returns a snapshot.
func (t *Client) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// Close denies further requests, and waits until those under way are answered, or ctx ends. The agent itself settles
// the units that it admitted. All that Dial started has ended when Close returns.
func (t *Client) Close(ctx context.Context) error {
	t.mu.Lock()
	t.state = closed
	t.forgetLocked(nil)
	t.mu.Unlock()
	select {
	case <-t.drained:
	case <-ctx.Done():
	}
	t.cancel()
	t.life.Wait()
	return t.calls.Close()
}
