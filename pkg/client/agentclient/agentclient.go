// Package agentclient asks a quota-agent for each decision, over its socket: for processes that are many or short-lived,
// and cannot each hold leases. What a Client of it admits the agent reports and settles.
package agentclient

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
	"unsafe"

	"google.golang.org/grpc"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/connect"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/target"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Client asks a quota-agent for each decision, over one connection that all callers share. It holds no
// leases, counts nothing and reports nothing: the agent does. It is for processes that are many or
// short-lived, and cannot each be a client.Client. Safe for concurrent use.
//
// One message at a time is under way. What is asked meanwhile waits for its answer, some tens of microseconds,
// and goes in one message: the more callers there are, the less each decision costs. What has to wait for
// the server is answered by itself, and holds up no other.
//
// While the agent is away WithFailureMode decides. A request that was asked and not answered when the connection broke may
// have been admitted by the agent, and billed: it is not asked again.
type Client struct {
	cfg    config
	log    *slog.Logger
	open   func(ctx context.Context) (ask.Carrier, error) // makes a stream, until ctx ends
	hangUp func() error                                   // ends what streams have in common
	cancel context.CancelFunc
	ended  chan struct{} // closed when all has ended
	first  chan struct{} // closed when the agent was reached, or could not be
	wake   chan struct{} // the writer has something to send

	mu      sync.Mutex
	state   contact
	queue   []*question // not sent yet, the oldest first
	sent    map[uint64]*question
	gone    int // of queue, that nobody waits for any more
	last    uint64
	flying  bool              // a message is not answered yet
	ending  bool              // the agent said that it is closing, and the line's end is still to come
	since   int64             // the tick of either
	leave   func()            // hangs up the line; nil where gRPC looks after the connection
	tick    int64             // rises overdueTicks times in the longest wait
	names   map[string]string // of limits, so that an answer need not copy its own
	stats   Stats
	drained chan struct{} // closed once it is closed and nothing waits

	free sync.Pool // of *question
}

type contact uint8

const (
	connecting contact = iota // what is asked waits
	talking
	away   // what is asked is decided by WithFailureMode
	closed // what is asked is denied
)

const (
	// overdueTicks is how finely a request's time is held against the longest wait: reading a clock for each
	// would cost more than the rest.
	overdueTicks = 8
	// maxNames bounds the names of limits that are remembered; more than a policy has.
	maxNames = 4096

	firstRedial = 20 * time.Millisecond
	lastRedial  = time.Second
	dialWait    = 2 * time.Second
)

// Stats is a snapshot of counts since Dial.
type Stats struct {
	Asked    int64 // requests
	Messages int64 // that carried them
	// Requests denied, or admitted, without an answer: Unknown while the agent was away or when the connection
	// broke, Deadlined because it did not come in time, Overloaded because too many waited.
	Unknown, Deadlined, Overloaded int64
	// Unaccounted is units admitted that no ledger will ever show: client.FailOpen.
	Unaccounted int64
	Away        bool   // the agent is out of contact
	Unreachable string // why; empty while it is there
	// UnreachableSince is when it went away; zero while it is there.
	UnreachableSince time.Time
}

// question is a request that waits for its answer.
type question struct {
	ask.Question
	tick     int64
	done     chan struct{} // has one when decision is there
	decision client.Decision
	over     bool // it is decided, or nobody waits for it; guarded by Client.mu
}

// Dial returns a client of the quota-agent at an address: unix:PATH or host:port, which is what
// the agent has as --grpc-addr. It waits up to WithFirstWait for the agent, and succeeds
// without it: it fails only for invalid addresses and options. ctx bounds the wait, not the client's life. Close must be called.
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
	open, hangUp, err := carriers(to, &cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", client.ErrOption, err)
	}
	life, cancel := context.WithCancel(context.Background())
	t := &Client{
		cfg: cfg, log: cfg.logger.With("quota_agent", to), open: open, hangUp: hangUp, cancel: cancel,
		ended: make(chan struct{}), first: make(chan struct{}), wake: make(chan struct{}, 1),
		sent: make(map[uint64]*question), names: make(map[string]string), drained: make(chan struct{}),
	}
	go t.run(life)
	if cfg.firstWait > 0 {
		timer := time.NewTimer(cfg.firstWait)
		defer timer.Stop()
		select {
		case <-t.first:
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return t, nil
}

// carriers returns what opens streams to an address: lines of their own, or with TLS streams of gRPC, over a
// connection that hangUp ends.
func carriers(to string, cfg *config) (open func(context.Context) (ask.Carrier, error), hangUp func() error, err error) {
	if cfg.connect.TLS == nil {
		if err := target.Check(to); err != nil {
			return nil, nil, err
		}
		network, addr := "tcp", strings.TrimPrefix(to, "dns:")
		if path, ok := strings.CutPrefix(to, "unix:"); ok {
			network, addr = "unix", strings.TrimPrefix(path, "//")
		}
		open := func(ctx context.Context) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialWait)
			defer cancel()
			if cfg.connect.Dialer != nil {
				return cfg.connect.Dialer(ctx, addr)
			}
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		}
		return func(ctx context.Context) (ask.Carrier, error) {
			l, err := ask.Connect(ctx, open)
			if err != nil {
				return nil, err
			}
			return l, nil
		}, func() error { return nil }, nil
	}
	conn, err := cfg.connect.Servers(to,
		// Windows that are never waited for: without them gRPC measures the line with a ping for each message.
		grpc.WithStaticStreamWindowSize(4*ask.MaxBytes), grpc.WithStaticConnWindowSize(4*ask.MaxBytes),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(ask.Codec{})))
	if err != nil {
		return nil, nil, err
	}
	api := quotav1.NewDecisionServiceClient(conn)
	return func(ctx context.Context) (ask.Carrier, error) {
		s, err := api.Decide(ctx)
		if err != nil {
			return nil, err
		}
		return &ask.Stream{Grpc: s}, nil
	}, conn.Close, nil
}

// Allow asks for one unit; see AllowN.
func (t *Client) Allow(ctx context.Context, attributes ...client.Attribute) client.Decision {
	return t.AllowN(ctx, 1, attributes...)
}

// AllowN has the agent decide a request that costs n units; see client.Client.AllowN. It waits no longer than ctx and
// WithMaxWait. The attributes are at most 32, and not kept.
func (t *Client) AllowN(ctx context.Context, n int64, attributes ...client.Attribute) client.Decision {
	a := own(attributes)
	if n < 0 || n > limit.MaxUnits || !ask.Fits(a) {
		return client.Decision{Reason: client.ReasonInvalid}
	}
	wait := t.cfg.maxWait
	if at, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(at), time.Microsecond))
	}
	t.mu.Lock()
	t.stats.Asked++
	switch {
	case t.state == closed:
		t.mu.Unlock()
		return client.Decision{Reason: client.ReasonClosed}
	case t.state == away:
		d := t.unknownLocked(n)
		t.mu.Unlock()
		return d
	case len(t.queue)-t.gone+len(t.sent) >= t.cfg.maxWaiting:
		t.stats.Overloaded++
		t.mu.Unlock()
		return client.Decision{Reason: client.ReasonOverloaded, RetryAfter: time.Second}
	}
	q := t.question()
	q.Units, q.Timeout, q.Attributes, q.over = n, wait.Microseconds(), append(q.Attributes[:0], a...), false
	t.last++
	q.ID, q.tick = t.last, t.tick
	t.queue = append(t.queue, q)
	send := !t.flying && t.state == talking
	t.mu.Unlock()
	if send {
		t.rouse()
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		if !t.abandon(q) {
			<-q.done
			break
		}
		return client.Decision{Reason: client.ReasonDeadline, RetryAfter: time.Second}
	}
	d := q.decision
	t.release(q)
	return d
}

func (t *Client) question() *question {
	if q, ok := t.free.Get().(*question); ok {
		return q
	}
	return &question{done: make(chan struct{}, 1)}
}

// release lets a question be used again, to which nothing refers.
func (t *Client) release(q *question) {
	clear(q.Attributes) // which are the caller's
	q.decision = client.Decision{}
	t.free.Put(q)
}

// abandon gives a question up whose caller's time is over. It reports false where the answer is there.
func (t *Client) abandon(q *question) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.over {
		return false
	}
	t.stats.Deadlined++
	if _, sent := t.sent[q.ID]; sent {
		delete(t.sent, q.ID)
		t.release(q)
	} else {
		q.over = true // the queue has it still
		clear(q.Attributes)
		t.gone++
	}
	t.drainedLocked()
	return true
}

// rouse wakes the writer.
func (t *Client) rouse() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// unknownLocked decides what the agent cannot be asked.
func (t *Client) unknownLocked(n int64) client.Decision {
	t.stats.Unknown++
	if t.cfg.failure == client.FailOpen {
		t.stats.Unaccounted += n
		return client.Decision{Allowed: true, Reason: client.ReasonUnknown}
	}
	return client.Decision{Reason: client.ReasonUnknown, RetryAfter: time.Second}
}

// decidedLocked ends a question's waiting.
func (q *question) decidedLocked(d client.Decision) {
	q.decision, q.over = d, true
	q.done <- struct{}{} // never full: it is decided once
}

// drainedLocked tells Close that nothing waits any more.
func (t *Client) drainedLocked() {
	if t.state == closed && len(t.sent) == 0 && len(t.queue) == t.gone {
		select {
		case <-t.drained:
		default:
			close(t.drained)
		}
	}
}

// Stats returns a snapshot.
func (t *Client) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// Close denies further requests, and waits until those that were asked are answered or ctx ends. What the agent admitted
// it settles itself. All that Dial started has ended when it returns.
func (t *Client) Close(ctx context.Context) error {
	t.mu.Lock()
	t.state = closed
	t.drainedLocked()
	t.mu.Unlock()
	select {
	case <-t.drained:
	case <-ctx.Done():
	}
	t.cancel()
	<-t.ended
	return t.hangUp()
}

// own hands the caller's attributes on without copying them: the two types have one layout, which the conversion below lets
// the compiler check.
func own(a []client.Attribute) []limit.Attribute { return *(*[]limit.Attribute)(unsafe.Pointer(&a)) }

var _ = limit.Attribute(client.Attribute{})
