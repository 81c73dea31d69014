package agentclient

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/retry"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	firstRedial = 20 * time.Millisecond
	lastRedial  = time.Second
	dialWait    = 2 * time.Second
)

// open opens a stream to the agent: a line of its own, or with TLS a stream of gRPC.
func (t *Client) open(ctx context.Context) (ask.Carrier, error) {
	if t.conn != nil {
		s, err := quotav1.NewDecisionServiceClient(t.conn).Decide(ctx)
		return &ask.Stream{Grpc: s}, err
	}
	return ask.Connect(ctx, func(ctx context.Context) (net.Conn, error) {
		network, addr := "tcp", strings.TrimPrefix(t.to, "dns:")
		if path, ok := strings.CutPrefix(t.to, "unix:"); ok {
			network, addr = "unix", strings.TrimPrefix(path, "//")
		}
		ctx, cancel := context.WithTimeout(ctx, dialWait)
		defer cancel()
		if t.cfg.connect.Dialer != nil {
			return t.cfg.connect.Dialer(ctx, addr)
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
}

// run talks to the agent until ctx ends.
func (t *Client) run(ctx context.Context) {
	for fails := 0; ctx.Err() == nil; {
		began := time.Now()
		opened, err := t.talk(ctx)
		t.lose(opened, err)
		if opened && !errors.Is(err, errSilent) && (err == nil || time.Since(began) > lastRedial) {
			fails = 0
			continue
		}
		fails++
		select {
		case <-time.After(retry.In(fails, firstRedial, lastRedial)):
		case <-ctx.Done():
		}
	}
	t.lose(false, context.Canceled)
}

// talk has one stream until it ends. It reports whether the agent said anything: gRPC opens some streams, and says only
// later that nobody is there. The error is nil where the agent asked for the end.
func (t *Client) talk(ctx context.Context) (opened bool, err error) {
	ctx, cause := context.WithCancelCause(ctx)
	cancel := func() { cause(nil) }
	defer cancel()
	stream, err := t.open(ctx)
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	t.backLocked()
	t.flying, t.ending = false, false
	if t.conn == nil {
		t.leave = func() { cause(errSilent) }
	}
	t.mu.Unlock()
	leaving := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { t.write(ctx, stream, leaving, cancel) })
	defer stream.Free()
	defer writer.Wait()
	defer cancel()
	t.rouse()
	var f ask.Frame
	closing := false
	for {
		if err := stream.Recv(&f); err != nil {
			switch cause := context.Cause(ctx); {
			case errors.Is(cause, errSilent):
				err = cause
			case closing && errors.Is(err, io.EOF):
				err = nil
			}
			return opened, err
		}
		opened = true
		if err := t.deliver(&f); err != nil {
			return true, err
		}
		if f.Closing && !closing {
			closing = true
			close(leaving)
		}
	}
}

// write sends the questions, one message after the other.
func (t *Client) write(ctx context.Context, stream ask.Carrier, leaving <-chan struct{}, cancel context.CancelFunc) {
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
		// Callers that were answered together ask again together: let them, so that one message has all their
		// questions.
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

// fill makes a message of the questions asked, where none is under way.
func (t *Client) fill(f *ask.Frame) {
	f.Reset()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flying {
		return
	}
	t.sweepLocked(func(q *question) bool {
		if q.sent = !f.Full(); q.sent {
			f.Ask(&q.Question)
		}
		return q.sent
	})
	if f.Len() > 0 {
		t.flying, t.since = true, t.tick
		t.stats.Messages++
	}
}

// deliver hands out the answers of a message.
func (t *Client) deliver(f *ask.Frame) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var a ask.Answer
	for {
		ok, err := f.Next(&a)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if q := t.asked[a.ID]; q != nil && q.sent {
			t.decideLocked(q, client.Decided(a.Allowed, client.Reason(a.Reason), micros(a.RetryAfter), client.Details{
				Limit: unique.Make(a.Limit).Value(), Cost: unique.Make(a.Cost).Value(), // the answer's own text is the message's
				Quota: a.Quota, Window: micros(a.Window), Remaining: a.Remaining, Reset: micros(a.Reset),
			}))
		}
	}
	if f.Done {
		t.flying = false
		t.backLocked()
		if len(t.queue) > 0 {
			t.rouse()
		}
	}
	if t.ending = t.ending || f.Closing; t.ending {
		t.since = t.tick
	}
	return nil
}

// lose ends a stream: questions sent on it get no answer. Those not sent wait for the next stream, unless the agent
// could not be reached.
func (t *Client) lose(opened bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.asked {
		if q.sent {
			t.decideLocked(q, t.unknownLocked(q.Units))
		}
	}
	t.flying, t.ending = false, false
	if !opened {
		t.awayLocked(err)
	}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
