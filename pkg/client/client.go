package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/switchfile"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

var (
	// ErrClosed is returned by what needs an open client.
	ErrClosed = errors.New("client: closed")
	// ErrUnsettled is wrapped by Close when usage is left that the ledger has not
	// acknowledged.
	ErrUnsettled = errors.New("client: usage not settled")
	// ErrOption is wrapped by Dial's errors about its arguments.
	ErrOption = errors.New("client: invalid option")
	// ErrJournal is wrapped by Dial's and Recover's errors about the journal.
	ErrJournal = errors.New("client: journal")
)

// Client decides requests. It is safe for concurrent use, and one for each
// server and process is enough.
type Client struct {
	reg *agent.Registry
	// special is set when decisions are anything but ordinary: the client is closed,
	// or an operator's switch is on.
	special atomic.Bool
	closed  atomic.Bool
	lost    atomic.Bool // the server is out of contact

	cfg   config
	log   *slog.Logger
	began time.Time // zero of the clock that buckets are told
	epoch int64
	// keeper is the journal; nil without.
	keeper *keeper

	conn *grpc.ClientConn
	api  quotav1.LeaseServiceClient

	wake    chan struct{}
	mu      sync.Mutex
	queue   []*agent.Entry // buckets that want the loop's attention
	handles []handle

	asks     chan func(*loop) // questions to the loop
	closing  chan closeRequest
	policied chan struct{} // closed with the first policy
	done     chan struct{} // closed when all has ended

	// Written before done is closed.
	final       Stats
	finalCounts Counts
	finalErr    error

	requests    sync.Pool // of *request, to be used again
	reserved    reservations
	waiting     atomic.Int64
	waited      atomic.Int64
	unknown     atomic.Int64
	refused     atomic.Int64
	deadlined   atomic.Int64
	crowded     atomic.Int64
	unaccounted atomic.Int64
	pressed     atomic.Bool // a bucket found no room
}

// Dial returns a client of the quota server at target: host:port, several of them
// with commas between for servers that share their engines, unix:PATH, or
// dns:HOST:PORT. It waits up to WithFirstWait for the first policy, and succeeds without one: it fails only for invalid
// addresses, options and journals. While no server answers, Stats.Unreachable says why, and so does the log, once. ctx
// bounds the wait, not the client's life. Close must be called.
func Dial(ctx context.Context, target string, opts ...Option) (*Client, error) {
	cfg := defaults()
	cfg.target = target
	for _, o := range opts {
		o(&cfg)
	}
	if cfg.agent == "" && cfg.journal == "" {
		cfg.agent = agentID()
	}
	if cfg.logger == nil {
		cfg.logger = defaultLogger()
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.switchFile != "" {
		var err error
		if cfg.switches, err = switchfile.Read(cfg.switchFile); err != nil {
			return nil, fmt.Errorf("%w: switch file %w", ErrOption, err)
		}
	}
	conn, err := connect(target, &cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOption, err)
	}
	if cfg.api == nil {
		cfg.api = quotav1.NewLeaseServiceClient(conn)
	}
	now := time.Now()
	keeper, err := openKeeper(&cfg, newEpoch(now))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c := &Client{
		reg: agent.NewRegistry(cfg.maxBuckets), cfg: cfg, log: cfg.logger.With("agent", cfg.agent),
		// A second back, so that no time is zero.
		began: now.Add(-time.Second), epoch: newEpoch(now), keeper: keeper,
		conn: conn, api: cfg.api,
		wake: make(chan struct{}, 1), asks: make(chan func(*loop)), closing: make(chan closeRequest),
		policied: make(chan struct{}), done: make(chan struct{}),
	}
	c.reg.CountFrom(c.began)
	c.reg.Share(cfg.tenantShare)
	if cfg.withoutSlots {
		c.reg.LeaveOutSlots()
	}
	if keeper != nil {
		c.epoch = keeper.life.Epoch
		c.reg.Keep(keeper.journal)
	}
	go c.run()
	if cfg.firstWait > 0 {
		t := time.NewTimer(cfg.firstWait)
		defer t.Stop()
		select {
		case <-c.policied:
		case <-ctx.Done():
		case <-t.C:
		}
	}
	return c, nil
}

func defaults() config {
	return config{
		firstWait: DefaultFirstWait, maxWait: DefaultMaxWait, renewTimeout: DefaultRenewTimeout,
		reportInterval: DefaultReportInterval, closeWait: DefaultCloseWait, idle: DefaultIdle,
		maxReservations: DefaultMaxReservations, reservationTime: DefaultReservationTime, journalAge: DefaultJournalAge, journalBytes: DefaultJournalBytes,
		maxBuckets: DefaultMaxBuckets, tenantShare: DefaultTenantShare, maxWaiting: DefaultMaxWaiting,
	}
}

func (c *config) validate() error {
	var faults []error
	check := func(ok bool, what string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: %s", ErrOption, what))
		}
	}
	check(limit.ValidAgent(c.agent) || c.agent == "" && c.journal != "", "an agent id is 1 to 128 bytes of [A-Za-z0-9._:-]")
	check(!strings.ContainsAny(c.key, "\r\n"), "a key is one line")
	check(c.unknown <= AllowUnknown, "no such Unknown")
	check(c.firstWait >= 0, "the first wait is negative")
	check(c.maxWait > 0, "the longest wait must be above 0")
	check(c.renewTimeout > 0, "the renewal's time must be above 0")
	check(c.reportInterval > 0, "the report interval must be above 0")
	check(c.closeWait > 0, "the time to close must be above 0")
	check(c.idle > 0, "the idle time must be above 0")
	check(c.maxBuckets > 0, "at least one bucket must be allowed")
	check(c.tenantShare >= 1 && c.tenantShare <= 100, "a tenant's share of the buckets is from 1 to 100 percent")
	check(c.maxWaiting >= 0, "the number of waiting requests is negative")
	check(c.journalSecret == nil || c.journal != "", "a secret of the journal is given, and no journal")
	check(c.journalSecret == nil || len(c.journalSecret) >= MinJournalSecret, "the journal's secret has less than 16 bytes")
	check(c.journalAge >= 0 && c.journalBytes >= 0, "how long or how much a journal keeps is negative")
	check(c.maxReservations >= 0, "the number of reservations is negative")
	check(c.reservationTime > 0 && c.reservationTime <= MaxReservationTime, "a reservation's time must be above 0 and at most an hour")
	return errors.Join(faults...)
}

// agentID makes a name that no other process has.
func agentID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "agent"
	}
	clean := strings.Map(func(r rune) rune {
		if r < 0x80 && limit.ValidAgent(string(r)) {
			return r
		}
		return '-'
	}, host)
	var chance [4]byte
	_, _ = rand.Read(chance[:]) // never fails
	return fmt.Sprintf("%.64s-%d-%s", clean, os.Getpid(), hex.EncodeToString(chance[:]))
}

// now is the clock of buckets: microseconds, above zero, never stepped.
func (c *Client) now() int64 { return c.reg.Now() }

// Agent returns the agent id in use.
func (c *Client) Agent() string { return c.cfg.agent }

// attend asks the loop to look at a bucket.
func (c *Client) attend(e *agent.Entry) {
	if !e.Queue() {
		return
	}
	c.mu.Lock()
	c.queue = append(c.queue, e)
	c.mu.Unlock()
	c.rouse()
}

// rouse wakes the loop.
func (c *Client) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// ask runs f in the loop, if it still runs.
func (c *Client) ask(f func(*loop)) bool {
	answered := make(chan struct{})
	select {
	case c.asks <- func(l *loop) { f(l); close(answered) }:
		<-answered
		return true
	case <-c.done:
		return false
	}
}

// Stats returns a snapshot. It takes some microseconds, however many buckets there are.
func (c *Client) Stats() Stats {
	var s Stats
	if !c.ask(func(l *loop) { s = l.stats() }) {
		s = c.final
	}
	return s
}

// Counts returns what was decided so far. It visits every bucket, of which a million take a second, and nothing is renewed
// meanwhile: for metrics and tests.
func (c *Client) Counts() Counts {
	var n Counts
	if !c.ask(func(l *loop) { n = l.counts() }) {
		n = c.finalCounts
	}
	return n
}

type closeRequest struct {
	ctx  context.Context
	done chan error
}

// errCloseWait is why Close gives up before its context does.
var errCloseWait = errors.New("client: the time of WithCloseWait is over")

// Close denies further requests, gives leases back, reports what was admitted, and waits until that is acknowledged. It
// ends with ctx or after WithCloseWait (10 s), whichever comes first; leases have half of that time. If usage is left then,
// the error wraps ErrUnsettled and says how much. With a journal the next start settles it; without one it is lost.
// All that the client started has ended when Close returns.
func (c *Client) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.closeWait, errCloseWait)
	defer cancel()
	r := closeRequest{ctx: ctx, done: make(chan error, 1)}
	select {
	case c.closing <- r:
		err := <-r.done
		<-c.done
		return err
	case <-c.done:
		return c.finalErr
	}
}
