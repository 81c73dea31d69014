package doors

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/handover"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// maxWaiting bounds the questions of one stream that wait for the server, because each takes a goroutine. At it nothing
// more is read until one is answered.
const maxWaiting = 4 * ask.MaxQuestions

// firstWait bounds how long a line may take to its first question, where connections are bounded. Until then its client
// is a stranger.
const firstWait = listen.ReadWait

// maxTurn is about how many questions are decided in a turn, before other lines have theirs. They take some half a
// millisecond.
const maxTurn = ask.MaxQuestions

// Decide is the door of thin clients: one stream each, whose messages carry many questions. It needs a gRPC server with
// ask.Codec, or Lines. It is safe for concurrent use.
//
// One goroutine of a stream leads: it reads a message, decides its questions, and writes one answer to all. A decision
// that has to wait for the server is answered by itself. Before it waits, it makes another goroutine the leader, with
// the rest of the message. So nearly all decisions are made here, cost no goroutine, and wait for nobody.
type Decide struct {
	quotav1.UnimplementedDecisionServiceServer

	client       Decider
	reservations *Reservations
	metrics      *Metrics
	closing      chan struct{}
	once         sync.Once
}

// NewDecide returns the service. Without reservations its unary calls are UNIMPLEMENTED. It starts nothing.
func NewDecide(c Decider, r *Reservations, m *Metrics) *Decide {
	return &Decide{client: c, reservations: r, metrics: m, closing: make(chan struct{})}
}

// Close asks all thin clients to end their streams, once their questions are answered.
func (d *Decide) Close() { d.once.Do(func() { close(d.closing) }) }

// stream is one thin client's.
type stream struct {
	door    *Decide
	ctx     context.Context // ends what waits when the client is gone
	hangup  func()          // ends ctx; nil where that ends by itself
	carrier ask.Carrier
	led     *led // by a turner; nil where a goroutine of its own leads
	peer    net.Addr
	leave   func()      // ends the carrier once nothing was asked for long; nil where that may stay
	asked   atomic.Bool // something, since that was last looked at

	leading sync.WaitGroup // leaders, and those that were and wait still

	mu      sync.Mutex
	room    sync.Cond // signalled when waiting falls
	waiting int
	full    bool  // nobody leads, until waiting falls
	err     error // the first; what the stream ends with
}

// Decide implements quotav1.DecisionServiceServer.
func (d *Decide) Decide(g grpc.BidiStreamingServer[quotav1.DecideRequest, quotav1.DecideResponse]) error {
	return d.serve(&stream{ctx: g.Context(), carrier: &ask.Stream{Grpc: g}, peer: listen.PeerOf(g.Context())})
}

// serve answers until the client has closed its end and everything is answered, or the stream broke.
func (d *Decide) serve(s *stream) error {
	s.door, s.room.L = d, &s.mu
	d.metrics.streams.Inc()
	defer d.metrics.streams.Dec()
	ended := make(chan struct{})
	first := newLeader(s)
	first.in, first.out = new(ask.Frame), new(ask.Frame)
	if s.led != nil {
		s.led.begin(first)
	} else {
		s.leading.Go(func() { first.lead() })
	}
	go func() {
		s.leading.Wait()
		close(ended)
	}()
	s.wait(ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// wait returns when the stream has ended. It asks the client to end the stream when the door closes, or when the client
// asked nothing for long: so no question is lost. It leaves an idle client that does not heed that.
func (s *stream) wait(ended <-chan struct{}) {
	closing := s.door.closing
	var idle <-chan time.Time
	var timer *time.Timer
	if s.leave != nil {
		timer = time.NewTimer(firstWait)
		defer timer.Stop()
		idle = timer.C
	}
	for told := false; ; {
		select {
		case <-ended:
			return
		case <-closing:
			closing = nil
		case <-idle:
			if s.isBusy() {
				timer.Reset(listen.CallWait)
				continue
			}
			if told {
				s.leave()
				idle = nil
				continue
			}
			timer.Reset(sortWait)
		}
		if !told {
			told = true
			var f ask.Frame
			f.End(false, true)
			s.send(&f)
		}
	}
}

// isBusy reports whether a question waits, or one was asked since the last call of isBusy.
func (s *stream) isBusy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked.Swap(false) || s.waiting > 0
}

// admit notes a question. With its first question the connection is known. False means that there are too many
// connections, and this one is closed.
func (s *stream) admit() bool {
	if s.asked.Load() {
		return true
	}
	s.asked.Store(true)
	return listen.Known(s.peer)
}

// fail ends the stream with err.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	if s.hangup != nil {
		s.hangup()
	}
}

func (s *stream) send(f *ask.Frame) {
	if err := s.carrier.Send(f); err != nil {
		s.fail(err)
	}
}

// leader is the goroutine that reads a stream. It is also the context of its decisions, with the deadline of the
// question at hand. Only a question that waits needs the deadline, so it is set up only then.
type leader struct {
	context.Context // the stream's, or with the time of the question that waits
	stream          *stream
	in, out         *ask.Frame
	question        ask.Question // at hand
	attributes      []client.Attribute
	costs           []client.Cost
	reading         bool            // a message was read, and is not answered
	asked           int             // questions since the line's turn began, a message of none as one
	asking          context.Context // itself, with what it does before it waits
	parted          bool            // another leads now
	cancel          context.CancelFunc
	counts          counts
}

// newLeader returns a leader without a message.
func newLeader(s *stream) *leader {
	l := &leader{Context: s.ctx, stream: s}
	l.asking = handover.BeforeWait(l, l.part)
	return l
}

// outcome is why a leader leads no more.
type outcome uint8

const (
	ended   outcome = iota // the stream did
	hasLeft                // another leads, and what waited is answered
	isIdle                 // nothing more is there yet
	isFull                 // as many questions wait as may
)

// lead reads and answers until there is nothing to read.
func (l *leader) lead() outcome {
	s := l.stream
	for {
		for { // what is left of the message; of the leader before, where its question waits
			ok, err := l.in.Question(&l.question)
			if err != nil {
				s.fail(status.Error(codes.InvalidArgument, err.Error()))
				return ended
			}
			if !ok {
				break
			}
			if !s.admit() {
				s.fail(listen.Refused())
				return ended
			}
			d := l.decide()
			l.counts.add(d)
			if l.parted {
				l.cancel()
				l.answerAlone(d)
				return hasLeft
			}
			l.out.Answer(answerOf(l.question.ID, &d))
		}
		if l.reading {
			l.out.End(true, false)
			s.door.metrics.add(&l.counts)
			l.send()
			l.asked += max(l.in.Len(), 1)
			l.out.Reset()
			l.reading = false
		}
		if s.led != nil && l.asked >= maxTurn {
			s.led.stalls() // others have waited long enough
			l.asked = 0
		}
		if may, why := s.mayRead(); !may {
			return why
		}
		if err := s.carrier.Recv(l.in); err != nil {
			if errors.Is(err, ask.ErrAgain) {
				return isIdle
			}
			if !errors.Is(err, io.EOF) {
				s.fail(err)
			}
			return ended
		}
		l.reading = true
		s.door.metrics.frames.Inc()
	}
}

// mayRead waits until another question may wait, or tells a turner that none may.
func (s *stream) mayRead() (may bool, why outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting >= maxWaiting && s.err == nil {
		if s.led != nil {
			return false, isFull
		}
		s.room.Wait()
	}
	return s.err == nil, ended
}

// rests reports whether maxWaiting questions wait. Then nobody leads until one is answered.
func (s *stream) rests() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = s.waiting >= maxWaiting
	return s.full
}

// hasRoom says that one question less waits.
func (s *stream) hasRoom() {
	s.mu.Lock()
	s.waiting--
	s.room.Signal()
	resume := s.full && s.waiting < maxWaiting
	s.full = s.full && !resume
	s.mu.Unlock()
	if resume {
		go s.led.goOn(nil)
	}
}

// send sends the answers.
func (l *leader) send() {
	if g := l.stream.led; g != nil {
		g.send(l.out)
		return
	}
	l.stream.send(l.out)
}

// decide decides the question at hand. If it waits, another goroutine leads by the time it returns.
func (l *leader) decide() client.Decision {
	q := &l.question
	if q.Units < 0 || q.Units > limit.MaxUnits {
		return client.Decision{Reason: client.ReasonInvalid}
	}
	l.attributes = l.attributes[:0]
	for i := range q.Attributes {
		l.attributes = append(l.attributes, client.Attribute(q.Attributes[i]))
	}
	l.costs = l.costs[:0]
	for i := range q.Costs {
		l.costs = append(l.costs, client.Cost(q.Costs[i]))
	}
	return l.stream.door.client.Decide(l.asking, client.Request{Units: q.Units, Costs: l.costs, Attributes: l.attributes})
}

// answerAlone answers a question that waited.
func (l *leader) answerAlone(d client.Decision) {
	s := l.stream
	var f ask.Frame
	f.Answer(answerOf(l.question.ID, &d))
	s.door.metrics.add(&l.counts)
	s.send(&f)
	s.hasRoom()
}

// part makes another goroutine the leader, because this one's question is about to wait. Its attributes are copied
// first, so that this goroutine reads the frame no more.
func (l *leader) part() {
	if l.parted {
		return
	}
	s := l.stream
	s.mu.Lock()
	s.waiting++
	s.mu.Unlock()
	next := newLeader(s)
	next.in, next.out, next.counts, next.reading, next.asked = l.in, l.out, l.counts, true, l.asked
	l.parted, l.in, l.out, l.counts = true, nil, nil, counts{}
	if most := l.question.Timeout; most > 0 {
		l.Context, l.cancel = context.WithTimeout(l.Context, time.Duration(min(most, int64(time.Hour/time.Microsecond)))*time.Microsecond)
	} else {
		l.cancel = func() {}
	}
	if s.led != nil {
		s.led.pass(next)
	} else {
		s.leading.Go(func() { next.lead() })
	}
}

func answerOf(id uint64, d *client.Decision) *ask.Answer {
	t := d.Details()
	return &ask.Answer{
		ID: id, Allowed: d.Allowed, Reason: uint8(d.Reason), RetryAfter: d.RetryAfter.Microseconds(),
		Limit: t.Limit, Quota: t.Quota, Window: t.Window.Microseconds(), Remaining: t.Remaining, Reset: t.Reset.Microseconds(), Cost: t.Cost,
	}
}
