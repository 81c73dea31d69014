package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/connect"
	"github.com/f4ee788f/quota/internal/core/likely"
	"github.com/f4ee788f/quota/internal/core/recovery"
	"github.com/f4ee788f/quota/internal/core/session"
	"github.com/f4ee788f/quota/internal/core/switchfile"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

var (
	// ErrClosed is returned by Client.Limiter after Close.
	ErrClosed = errors.New("client: closed")
	// ErrUnsettled is wrapped by the errors of Close and Recover: the ledger has not acknowledged all usage.
	ErrUnsettled = recovery.ErrUnsettled
	// ErrOption is wrapped by the errors of Dial and Recover about their arguments.
	ErrOption = errors.New("client: invalid option")
	// ErrJournal is wrapped by the errors of Dial and Recover about the journal.
	ErrJournal = recovery.ErrJournal
)

// Client decides requests. It is safe for concurrent use; one for each server and process is enough.
type Client struct {
	reg     *agent.Registry
	clock   func() int64 // reg.Now
	session *session.Session
	// The session's; see there.
	special, closed, lost *atomic.Bool

	cfg  config
	conn *grpc.ClientConn

	mu      sync.Mutex
	handles []*pin
	ended   bool // no further trials begin
	trials  sync.WaitGroup

	requests    sync.Pool // of *request
	reserved    reservations
	likely      likely.Table // what reserved requests turned out to cost
	events      eventTable
	unweighed   unweighed
	waiting     atomic.Int64
	trying      atomic.Int64 // trials that wait for answers
	waited      atomic.Int64
	unknown     atomic.Int64
	refused     atomic.Int64
	deadlined   atomic.Int64
	overloaded  atomic.Int64
	unaccounted atomic.Int64
}

// Dial returns a client of the quota server at target: host:port, unix:PATH or dns:HOST:PORT. Servers that share their
// engines may be given together, with commas between.
//
// It waits up to WithFirstWait for the first policy, and succeeds without one. It fails only for invalid addresses and
// options (ErrOption), and for journals (ErrJournal). While no server answers, Stats.Unreachable says why, and so does
// the log, once. ctx bounds the wait, not the client's life. The caller must call Close.
func Dial(ctx context.Context, target string, opts ...Option) (*Client, error) {
	cfg := defaults()
	for _, o := range opts {
		o(&cfg)
	}
	s := &cfg.session
	if s.Agent == "" && s.Journal == "" {
		s.Agent = recovery.NewAgent()
	}
	if s.Log == nil {
		s.Log = connect.Logger()
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	var err error
	if s.SwitchFile != "" {
		if s.Switches, err = switchfile.Read(s.SwitchFile); err != nil {
			return nil, fmt.Errorf("%w: switch file %w", ErrOption, err)
		}
	}
	conn, err := cfg.connect.Servers(target)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOption, err)
	}
	if s.API == nil {
		s.API = quotav1.NewLeaseServiceClient(conn)
	}
	c := &Client{conn: conn}
	s.Target, s.Why = target, cfg.connect.Explain
	s.Changed, s.Tidy = func() { c.sweepHandles(true) }, func() { c.sweepHandles(false) }
	s.Expire = c.expireReservations
	c.cfg = cfg
	if c.session, err = session.New(*s); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.reg, c.special, c.closed, c.lost = c.session.Registry, &c.session.Special, &c.session.Closed, &c.session.Lost
	c.clock = c.reg.Now
	c.recall(c.session.Reservations())
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

// Agent returns the client's agent id: WithAgent's, the journal's, or one made by Dial.
func (c *Client) Agent() string { return c.session.Agent() }

// Close denies further requests, gives leases back, reports all usage, and waits until it is acknowledged. It ends with
// ctx or after WithCloseWait, whichever comes first; leases have half of that time. All that Dial started has ended
// when Close returns.
//
// If usage is left, the error wraps ErrUnsettled and says how much. With a journal the next start settles it; without
// one it is lost.
func (c *Client) Close(ctx context.Context) error {
	err := c.session.Close(ctx)
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.trials.Wait()    // all of them are answered
	_ = c.conn.Close() // it fails only when closed twice
	return err
}
