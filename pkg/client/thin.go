package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/connect"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/target"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Thin asks a quota-agent for each decision, over one connection that all callers share. It holds no
// leases, counts nothing and reports nothing: the agent does. It is for processes that are many or
// short-lived, and cannot each be a Client. Safe for concurrent use.
//
// One message at a time is under way. What is asked meanwhile waits for its answer, some tens of microseconds,
// and goes in one message: the more callers there are, the less each decision costs. What has to wait for
// the server is answered by itself, and holds up no other.
//
// While the agent is away WithUnknown decides. A request that was asked and not answered when the connection broke may
// have been admitted by the agent, and billed: it is not asked again.
type Thin struct {
	cfg    config
	log    *slog.Logger
	open   func(ctx context.Context) (ask.Carrier, error) // makes a stream, until ctx ends
	hangUp func() error                                   // ends what streams have in common
	cancel context.CancelFunc
	ended  chan struct{} // closed when all has ended
	first  chan struct{} // closed when the agent was reached, or could not be
	wake   chan struct{} // the writer has something to send

	mu      sync.Mutex
	state   thinState
	queue   []*question // not sent yet, the oldest first
	sent    map[uint64]*question
	gone    int // of queue, that nobody waits for any more
	last    uint64
	flying  bool   // a message is not answered yet
	ending  bool   // the agent said that it is closing, and the line's end is still to come
	since   int64  // the tick of either
	leave   func() // hangs up the line; nil where gRPC looks after the connection
	tick    int64  // rises overdueTicks times in the longest wait
	limits  map[limitKey]*limit.Limit
	stats   ThinStats
	drained chan struct{} // closed once it is closed and nothing waits

	free sync.Pool // of *question
}

type thinState uint8

const (
	connecting thinState = iota // what is asked waits
	talking
	away       // what is asked is decided by WithUnknown
	thinClosed // what is asked is denied
)

const (
	// overdueTicks is how finely a request's time is held against the longest wait: reading a clock for each
	// would cost more than the rest.
	overdueTicks = 8
	// maxLimits bounds the limits that are remembered by name and rate; more than a policy has.
	maxLimits = 4096

	firstRedial = 20 * time.Millisecond
	lastRedial  = time.Second
	dialWait    = 2 * time.Second
)

// ThinStats is a snapshot of counts since DialAgent.
type ThinStats struct {
	Asked    int64 // requests
	Messages int64 // that carried them
	// Requests denied, or admitted, without an answer: Unknown while the agent was away or when the connection
	// broke, Deadlined because it did not come in time, Crowded because too many waited.
	Unknown, Deadlined, Crowded int64
	// Unaccounted is units admitted that no ledger will ever show: AllowUnknown.
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
	decision Decision
	over     bool // it is decided, or nobody waits for it; guarded by Thin.mu
}

// limitKey is what an answer tells of a limit.
type limitKey struct {
	name          string
	quota, window int64
}

// told is what a decision keeps that an agent made.
type told struct {
	limit            *limit.Limit
	remaining, reset int64
}

// DialAgent returns a client of the quota-agent at an address: unix:PATH or host:port, which is what
// the agent has as --grpc-addr. It waits up to WithFirstWait for the agent, and succeeds
// without it: it fails only for invalid options. ctx bounds the wait, not the client's life. Close must be called.
//
// Of the options those count that say how to connect and how to wait: WithTLS, WithDialer, WithUnknown, WithFirstWait, WithMaxWait,
// WithMaxWaiting and WithLogger.
func DialAgent(ctx context.Context, to string, opts ...Option) (*Thin, error) {
	cfg := defaults()
	for _, o := range opts {
		o(&cfg)
	}
	cfg.agent = "thin" // it has no name of its own
	if cfg.logger == nil {
		cfg.logger = connect.Logger()
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	open, hangUp, err := carriers(to, &cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOption, err)
	}
	life, cancel := context.WithCancel(context.Background())
	t := &Thin{
		cfg: cfg, log: cfg.logger.With("quota_agent", to), open: open, hangUp: hangUp, cancel: cancel,
		ended: make(chan struct{}), first: make(chan struct{}), wake: make(chan struct{}, 1),
		sent: make(map[uint64]*question), limits: make(map[limitKey]*limit.Limit), drained: make(chan struct{}),
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
func (t *Thin) Allow(ctx context.Context, attributes ...Attribute) Decision {
	return t.AllowN(ctx, 1, attributes...)
}

// AllowN has the agent decide a request that costs n units; see Client.AllowN. It waits no longer than ctx and
// WithMaxWait. The attributes are at most 32, and not kept.
func (t *Thin) AllowN(ctx context.Context, n int64, attributes ...Attribute) Decision {
	a := attributesOf(attributes)
	if n < 0 || n > limit.MaxUnits || !ask.Fits(a) {
		return Decision{Reason: ReasonInvalid}
	}
	wait := t.cfg.maxWait
	if at, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(at), time.Microsecond))
	}
	t.mu.Lock()
	t.stats.Asked++
	switch {
	case t.state == thinClosed:
		t.mu.Unlock()
		return Decision{Reason: ReasonClosed}
	case t.state == away:
		d := t.unknownLocked(n)
		t.mu.Unlock()
		return d
	case len(t.queue)-t.gone+len(t.sent) >= t.cfg.maxWaiting:
		t.stats.Crowded++
		t.mu.Unlock()
		return Decision{Reason: ReasonCrowded, RetryAfter: time.Second}
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
		return Decision{Reason: ReasonDeadline, RetryAfter: time.Second}
	}
	d := q.decision
	t.release(q)
	return d
}

func (t *Thin) question() *question {
	if q, ok := t.free.Get().(*question); ok {
		return q
	}
	return &question{done: make(chan struct{}, 1)}
}

// release lets a question be used again, to which nothing refers.
func (t *Thin) release(q *question) {
	clear(q.Attributes) // which are the caller's
	q.decision = Decision{}
	t.free.Put(q)
}

// abandon gives a question up whose caller's time is over. It reports false where the answer is there.
func (t *Thin) abandon(q *question) bool {
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
func (t *Thin) rouse() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// unknownLocked decides what the agent cannot be asked.
func (t *Thin) unknownLocked(n int64) Decision {
	t.stats.Unknown++
	if t.cfg.unknown == AllowUnknown {
		t.stats.Unaccounted += n
		return Decision{Allowed: true, Reason: ReasonUnknown}
	}
	return Decision{Reason: ReasonUnknown, RetryAfter: time.Second}
}

// decidedLocked ends a question's waiting.
func (q *question) decidedLocked(d Decision) {
	q.decision, q.over = d, true
	q.done <- struct{}{} // never full: it is decided once
}

// run talks to the agent until ctx ends.
func (t *Thin) run(ctx context.Context) {
	defer close(t.ended)
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { t.watch(ctx) })
	var once sync.Once
	reached := func() { once.Do(func() { close(t.first) }) }
	defer reached()
	for fails := 0; ctx.Err() == nil; {
		began := time.Now()
		opened, err := t.talk(ctx, reached)
		t.lose(opened, err)
		reached()
		if opened && !errors.Is(err, errSilent) && (err == nil || time.Since(began) > lastRedial) {
			fails = 0
			continue
		}
		fails++
		pause := time.NewTimer(redialIn(fails))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	t.lose(false, context.Canceled)
}

// redialIn is how long to stay away after so many failures, with chance, so that not all come back at once.
func redialIn(fails int) time.Duration {
	d := min(firstRedial<<min(fails-1, 10), lastRedial)
	return d/2 + rand.N(d/2)
}

// talk holds one stream until it ends. It reports whether the agent said anything: to some streams that it
// opens gRPC says only later that there is nobody. The error is nil where the agent asked for the end.
func (t *Thin) talk(ctx context.Context, reached func()) (opened bool, err error) {
	ctx, cause := context.WithCancelCause(ctx)
	cancel := func() { cause(nil) }
	defer cancel()
	stream, err := t.open(ctx)
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	if t.state == away {
		t.log.Info("the quota-agent is back")
	}
	if t.state != thinClosed {
		t.state = talking
	}
	t.flying, t.ending, t.stats.Away = false, false, false
	t.stats.Unreachable, t.stats.UnreachableSince = "", time.Time{}
	if t.cfg.connect.TLS == nil {
		t.leave = func() { cause(errSilent) }
	}
	t.mu.Unlock()
	reached()
	leaving := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { t.write(ctx, stream, leaving, cancel) })
	defer stream.Free()
	defer writer.Wait()
	defer cancel()
	t.rouse()
	var f ask.Frame
	left := false
	for {
		if err := stream.Recv(&f); err != nil {
			if left && errors.Is(err, io.EOF) {
				err = nil
			}
			if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
				err = cause
			}
			return opened, err
		}
		opened = true
		closing, err := t.deliver(&f)
		if err != nil {
			return true, err
		}
		if closing && !left {
			left = true
			close(leaving)
		}
	}
}

// write sends what was asked, one message after the other.
func (t *Thin) write(ctx context.Context, stream ask.Carrier, leaving <-chan struct{}, cancel context.CancelFunc) {
	var f ask.Frame
	for {
		select {
		case <-t.wake:
		case <-leaving:
			_ = stream.CloseSend() // the reader sees what came of it
			return
		case <-ctx.Done():
			return
		}
		// Callers that were answered together ask again together: they come first, and their
		// questions into this message.
		runtime.Gosched()
		if t.fill(&f); f.Len() == 0 {
			continue
		}
		if err := stream.Send(&f); err != nil {
			cancel() // the reader ends, and is told why
			return
		}
	}
}

// fill makes a message of what was asked, where none is under way.
func (t *Thin) fill(f *ask.Frame) {
	f.Reset()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flying {
		return
	}
	i := 0
	for ; i < len(t.queue) && !f.Full(); i++ {
		q := t.queue[i]
		if q.over {
			t.gone--
			t.release(q)
			continue
		}
		f.Ask(&q.Question)
		t.sent[q.ID] = q
	}
	rest := copy(t.queue, t.queue[i:])
	clear(t.queue[rest:])
	t.queue = t.queue[:rest]
	if f.Len() > 0 {
		t.flying, t.since = true, t.tick
		t.stats.Messages++
	}
}

// deliver hands out the answers of a message.
func (t *Thin) deliver(f *ask.Frame) (closing bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var a ask.Answer
	for {
		ok, err := f.Next(&a)
		if err != nil {
			return false, err
		}
		if !ok {
			break
		}
		q := t.sent[a.ID]
		if q == nil {
			continue // given up
		}
		delete(t.sent, a.ID)
		d := Decision{Allowed: a.Allowed, Reason: Reason(a.Reason), RetryAfter: time.Duration(a.RetryAfter) * time.Microsecond}
		if a.Limit != "" {
			d.by = &told{t.limitLocked(&a), a.Remaining, a.Reset}
		}
		q.decidedLocked(d)
	}
	if f.Done {
		t.flying = false
		if t.state == away {
			t.state = talking
			t.log.Info("the quota-agent answers again")
		}
		t.stats.Away = false
		if len(t.queue) > 0 {
			t.rouse()
		}
	}
	if t.ending = t.ending || f.Closing; t.ending {
		t.since = t.tick
	}
	t.drainedLocked()
	return f.Closing, nil
}

// limitLocked returns the limit that an answer tells of.
func (t *Thin) limitLocked(a *ask.Answer) *limit.Limit {
	k := limitKey{a.Limit, a.Quota, a.Window}
	if l := t.limits[k]; l != nil {
		return l
	}
	if len(t.limits) >= maxLimits {
		clear(t.limits)
	}
	k.name = strings.Clone(k.name) // it was the message's
	l := &limit.Limit{Name: k.name, Rate: limit.Rate{Units: k.quota, Per: time.Duration(k.window) * time.Microsecond}}
	t.limits[k] = l
	return l
}

// lose ends a stream: what was asked on it has no answer. What was not sent waits for the next one, unless the agent
// could not be reached.
func (t *Thin) lose(opened bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, q := range t.sent {
		delete(t.sent, id)
		q.decidedLocked(t.unknownLocked(q.Units))
	}
	t.flying, t.ending = false, false
	if !opened {
		t.awayLocked(err)
	} else if t.state == talking {
		t.state = connecting
	}
	t.drainedLocked()
}

// awayLocked decides all that waits without the agent, and what is asked until it is back.
func (t *Thin) awayLocked(err error) {
	if t.state != thinClosed {
		if t.state != away {
			t.log.Warn("the quota-agent is away", "error", err)
		}
		t.state = away
	}
	if !t.stats.Away {
		t.stats.UnreachableSince = time.Now()
	}
	t.stats.Away, t.stats.Unreachable = true, t.cfg.connect.Explain(err)
	for _, q := range t.queue {
		if q.over {
			t.release(q)
		} else {
			q.decidedLocked(t.unknownLocked(q.Units))
		}
	}
	clear(t.queue)
	t.queue, t.gone = t.queue[:0], 0
}

var errSilent = errors.New("client: no answer within the longest wait")

// watch ends the waiting of questions whose answer is overdue, until ctx ends. An agent that says nothing
// for so long counts as away, and where it goes on for as long again the line is left: it may lead to nobody any
// more, as after a partition or when a host was replaced, which TCP takes a quarter of an hour to notice.
func (t *Thin) watch(ctx context.Context) {
	ticker := time.NewTicker(max(t.cfg.maxWait/overdueTicks, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			t.overdue()
		case <-ctx.Done():
			return
		}
	}
}

func (t *Thin) overdue() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tick++
	end := func(q *question) bool {
		if t.tick-q.tick <= overdueTicks {
			return false
		}
		t.stats.Deadlined++
		q.decidedLocked(Decision{Reason: ReasonDeadline, RetryAfter: time.Second})
		return true
	}
	for id, q := range t.sent {
		if end(q) {
			delete(t.sent, id)
		}
	}
	kept := t.queue[:0]
	for _, q := range t.queue {
		switch {
		case q.over:
			t.gone--
			t.release(q)
		case !end(q):
			kept = append(kept, q)
		}
	}
	clear(t.queue[len(kept):])
	t.queue = kept
	silent := int64(0)
	if t.flying || t.ending {
		silent = t.tick - t.since
	}
	if silent > overdueTicks && t.state == talking {
		t.awayLocked(errSilent) // an answer brings it back, or a new connection
	}
	if silent > 2*overdueTicks && t.state == away && t.leave != nil {
		t.leave() // what was sent is decided already
	}
	t.drainedLocked()
}

// drainedLocked tells Close that nothing waits any more.
func (t *Thin) drainedLocked() {
	if t.state == thinClosed && len(t.sent) == 0 && len(t.queue) == t.gone {
		select {
		case <-t.drained:
		default:
			close(t.drained)
		}
	}
}

// Stats returns a snapshot.
func (t *Thin) Stats() ThinStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// Close denies further requests, and waits until those that were asked are answered or ctx ends. What the agent admitted
// it settles itself. All that DialAgent started has ended when it returns.
func (t *Thin) Close(ctx context.Context) error {
	t.mu.Lock()
	t.state = thinClosed
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
