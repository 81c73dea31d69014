package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/connect"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/recovery"
	"github.com/f4ee788f/quota/internal/core/session"
	"github.com/f4ee788f/quota/internal/core/switchfile"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

var (
	// ErrClosed is returned by what needs an open client.
	ErrClosed = errors.New("client: closed")
	// ErrUnsettled is wrapped by Close when usage is left that the ledger has not
	// acknowledged.
	ErrUnsettled = recovery.ErrUnsettled
	// ErrOption is wrapped by Dial's errors about its arguments.
	ErrOption = errors.New("client: invalid option")
	// ErrJournal is wrapped by Dial's and Recover's errors about the journal.
	ErrJournal = recovery.ErrJournal
)

// Client decides requests. It is safe for concurrent use, and one for each
// server and process is enough.
type Client struct {
	reg     *agent.Registry
	session *session.Session
	// The session's; see there.
	special, closed, lost *atomic.Bool

	cfg  config
	conn *grpc.ClientConn

	mu      sync.Mutex
	handles []handle

	requests    sync.Pool // of *request, to be used again
	reserved    reservations
	waiting     atomic.Int64
	waited      atomic.Int64
	unknown     atomic.Int64
	refused     atomic.Int64
	deadlined   atomic.Int64
	overloaded  atomic.Int64
	unaccounted atomic.Int64
}

// Dial returns a client of the quota server at target: host:port, several of them
// with commas between for servers that share their engines, unix:PATH, or
// dns:HOST:PORT. It waits up to WithFirstWait for the first policy, and succeeds without one: it fails only for invalid
// addresses, options and journals. While no server answers, Stats.Unreachable says why, and so does the log, once. ctx
// bounds the wait, not the client's life. Close must be called.
func Dial(ctx context.Context, target string, opts ...Option) (*Client, error) {
	cfg := defaults()
	for _, o := range opts {
		o(&cfg)
	}
	if cfg.agent == "" && cfg.journal == "" {
		cfg.agent = recovery.NewAgent()
	}
	if cfg.logger == nil {
		cfg.logger = connect.Logger()
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
	conn, err := cfg.connect.Servers(target)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOption, err)
	}
	if cfg.api == nil {
		cfg.api = quotav1.NewLeaseServiceClient(conn)
	}
	c := &Client{cfg: cfg, conn: conn}
	if c.session, err = session.New(c.sessionConfig(target)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.reg, c.special, c.closed, c.lost = c.session.Registry, &c.session.Special, &c.session.Closed, &c.session.Lost
	go c.session.Run()
	if cfg.firstWait > 0 {
		t := time.NewTimer(cfg.firstWait)
		defer t.Stop()
		select {
		case <-c.session.Known():
		case <-ctx.Done():
		case <-t.C:
		}
	}
	return c, nil
}

func (c *Client) sessionConfig(target string) session.Config {
	cfg := &c.cfg
	return session.Config{
		Agent: cfg.agent, API: cfg.api, Target: target, Why: cfg.connect.Explain, Log: cfg.logger,
		RenewTimeout: cfg.renewTimeout, ReportInterval: cfg.reportInterval, CloseWait: cfg.closeWait, Idle: cfg.idle,
		MaxBuckets: cfg.maxBuckets, TenantShare: cfg.tenantShare, WithoutSlots: cfg.withoutSlots,
		SwitchFile: cfg.switchFile, Switches: cfg.switches,
		Journal: cfg.journal, JournalAge: cfg.journalAge, JournalBytes: cfg.journalBytes, JournalSecret: cfg.journalSecret,
		Changed: c.releaseAll, Tidy: func() { c.sweepHandles(func(*Limiter) {}) }, Expire: c.reserved.expire,
	}
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
	check(!strings.ContainsAny(c.connect.Key, "\r\n"), "a key is one line")
	check(c.failure <= FailOpen, "no such failure mode")
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

// now is the clock of buckets: microseconds, above zero, never stepped.
func (c *Client) now() int64 { return c.reg.Now() }

// Agent returns the agent id in use.
func (c *Client) Agent() string { return c.session.Agent() }

// attend has a bucket looked at.
func (c *Client) attend(e *agent.Entry) { c.session.Attend(e) }

// Counts returns what was decided so far. It visits every bucket, of which a million take a second, and nothing is renewed
// meanwhile: for metrics and tests.
func (c *Client) Counts() Counts {
	n := c.session.Counts()
	all := Counts{Admitted: n.Admitted, Denied: n.Denied, Billed: n.Billed, Overage: n.Overage}
	for _, t := range n.Trials {
		all.Trials = append(all.Trials, Trial(t))
	}
	return all
}

// Close denies further requests, gives leases back, reports what was admitted, and waits until that is acknowledged. It
// ends with ctx or after WithCloseWait (10 s), whichever comes first; leases have half of that time. If usage is left then,
// the error wraps ErrUnsettled and says how much. With a journal the next start settles it; without one it is lost.
// All that the client started has ended when Close returns.
func (c *Client) Close(ctx context.Context) error {
	err := c.session.Close(ctx)
	_ = c.conn.Close() // it fails only when closed twice
	return err
}
