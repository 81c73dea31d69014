package session

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/recovery"
	"github.com/f4ee788f/quota/internal/core/switchfile"
	"github.com/f4ee788f/quota/internal/core/usage"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Config is what a session goes by. All of it is set, but for what says otherwise.
type Config struct {
	Agent  string // may be empty with a journal, which knows the name of the life before
	API    quotav1.LeaseServiceClient
	Target string                 // as the caller wrote it, for logs
	Why    func(err error) string // says why a call failed
	Log    *slog.Logger

	RenewTimeout, ReportInterval, CloseWait, Idle time.Duration

	MaxBuckets   int
	TenantShare  int // percent of them
	WithoutSlots bool

	SwitchFile string          // empty for none
	Switches   switchfile.Says // what the file said at the start

	Journal       string        // directory; empty for none
	JournalAge    time.Duration // that settled logs are kept
	JournalBytes  int64         // of them at most
	JournalSecret []byte        // nil for none

	// Changed is called when what holds requests may be another: handles have to be resolved again.
	Changed func()
	// Tidy is called every report interval, for what the owner keeps.
	Tidy func()
	// Expire ends the reservations whose time is over, all of them at the session's end. It returns when there is more to do.
	Expire func(now time.Time, closing bool) (next time.Time)
}

// Session is the life of a gateway. Its methods are for the goroutines that decide; all else is its one goroutine's.
type Session struct {
	Registry *agent.Registry
	// Special is set when decisions are anything but ordinary: the session is closed, or an operator's switch is on.
	Special atomic.Bool
	Closed  atomic.Bool
	Lost    atomic.Bool // the server is out of contact

	cfg     Config
	api     quotav1.LeaseServiceClient
	log     *slog.Logger
	began   time.Time // zero of the clock that buckets are told
	epoch   int64
	journal *recovery.Journal // nil without

	wake    chan struct{}
	mu      sync.Mutex
	queue   []*agent.Entry // buckets that want the loop's attention
	pressed atomic.Bool    // a bucket found no room

	asks    chan func(*Loop) // questions to the loop
	closing chan closeRequest
	known   chan struct{} // closed once the first policy and the last life's tenants are known
	done    chan struct{} // closed when all has ended

	// Written before done is closed.
	final       Stats
	finalCounts Counts
	finalErr    error
}

// New returns a session, with its journal open. It starts nothing: Run does, and has to follow.
func New(cfg Config) (*Session, error) {
	now := time.Now()
	kept := recovery.Config{
		Dir: cfg.Journal, Agent: cfg.Agent, Age: cfg.JournalAge, Bytes: cfg.JournalBytes, Secret: cfg.JournalSecret, Log: cfg.Log,
	}
	journal, err := recovery.Open(&kept, recovery.NewEpoch(now))
	if err != nil {
		return nil, err
	}
	cfg.Agent = kept.Agent
	s := &Session{
		Registry: agent.NewRegistry(cfg.MaxBuckets), cfg: cfg, api: cfg.API, log: cfg.Log.With("agent", cfg.Agent),
		// A second back, so that no time is zero.
		began: now.Add(-time.Second), epoch: recovery.NewEpoch(now), journal: journal,
		wake: make(chan struct{}, 1), asks: make(chan func(*Loop)), closing: make(chan closeRequest),
		known: make(chan struct{}), done: make(chan struct{}),
	}
	s.Registry.CountFrom(s.began)
	s.Registry.Share(cfg.TenantShare)
	if cfg.WithoutSlots {
		s.Registry.LeaveOutSlots()
	}
	if journal != nil {
		s.epoch = journal.Life.Epoch
		s.Registry.Keep(journal.Records())
	}
	return s, nil
}

// Agent returns the agent id in use.
func (s *Session) Agent() string { return s.cfg.Agent }

// Epoch returns the epoch that the session began under.
func (s *Session) Epoch() int64 { return s.epoch }

// Records is what the journal writes down; nil, which records nothing, without one.
func (s *Session) Records() *usage.Journal { return s.journal.Records() }

// Reservations returns those that the journal knows of earlier lives. All have ended.
func (s *Session) Reservations() []usage.Reservation {
	if s.journal == nil {
		return nil
	}
	return s.journal.Reservations
}

// Now is the clock of buckets: microseconds, above zero, never stepped.
func (s *Session) Now() int64 { return s.Registry.Now() }

// until is how long it is until a time of that clock; an hour at most.
func (s *Session) until(at int64) time.Duration {
	return time.Duration(min(max(at-s.Now(), 0), time.Hour.Microseconds())) * time.Microsecond
}

// Known is closed once a policy is in force, and the server has answered about the tenants of the last life.
func (s *Session) Known() <-chan struct{} { return s.known }

// Done is closed when all has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Attend asks the loop to look at a bucket.
func (s *Session) Attend(e *agent.Entry) {
	if !e.Queue() {
		return
	}
	s.mu.Lock()
	s.queue = append(s.queue, e)
	s.mu.Unlock()
	s.Rouse()
}

// Press says that a bucket found no room.
func (s *Session) Press() {
	s.pressed.Store(true)
	s.Rouse()
}

// Rouse wakes the loop.
func (s *Session) Rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Ask runs f in the loop, if it still runs.
func (s *Session) Ask(f func(*Loop)) bool {
	answered := make(chan struct{})
	select {
	case s.asks <- func(l *Loop) { f(l); close(answered) }:
		<-answered
		return true
	case <-s.done:
		return false
	}
}

// Stats returns a snapshot. It takes some microseconds, however many buckets there are.
func (s *Session) Stats() Stats {
	var st Stats
	if !s.Ask(func(l *Loop) { st = l.stats() }) {
		st = s.final
	}
	return st
}

// Counts returns what was decided so far. It visits every bucket.
func (s *Session) Counts() Counts {
	var n Counts
	if !s.Ask(func(l *Loop) { n = l.counts() }) {
		n = s.finalCounts
	}
	return n
}

type closeRequest struct {
	ctx  context.Context
	done chan error
}

// errCloseWait is why Close gives up before its context does.
var errCloseWait = errors.New("client: the time of WithCloseWait is over")

// Close ends decisions, gives leases back and settles, and returns when all that Run started has ended: no later than ctx and
// CloseWait say. An error wraps ErrUnsettled where usage is left.
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.CloseWait, errCloseWait)
	defer cancel()
	r := closeRequest{ctx: ctx, done: make(chan error, 1)}
	select {
	case s.closing <- r:
		err := <-r.done
		<-s.done
		return err
	case <-s.done:
		return s.finalErr
	}
}
