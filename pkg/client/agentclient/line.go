package agentclient

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/retry"
	"github.com/f4ee788f/quota/pkg/client"
)

// run talks to the agent until ctx ends.
func (t *Client) run(ctx context.Context) {
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
		pause := time.NewTimer(retry.In(fails, firstRedial, lastRedial))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	t.lose(false, context.Canceled)
}

// talk holds one stream until it ends. It reports whether the agent said anything: to some streams that it
// opens gRPC says only later that there is nobody. The error is nil where the agent asked for the end.
func (t *Client) talk(ctx context.Context, reached func()) (opened bool, err error) {
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
	if t.state != closed {
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
func (t *Client) fill(f *ask.Frame) {
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
func (t *Client) deliver(f *ask.Frame) (closing bool, err error) {
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
		q.decidedLocked(client.Decided(a.Allowed, client.Reason(a.Reason), time.Duration(a.RetryAfter)*time.Microsecond, client.Details{
			Limit: t.nameLocked(a.Limit), Quota: a.Quota, Window: time.Duration(a.Window) * time.Microsecond,
			Remaining: a.Remaining, Reset: time.Duration(a.Reset) * time.Microsecond,
		}))
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

// nameLocked returns a limit's name, which in an answer is the message's.
func (t *Client) nameLocked(name string) string {
	if own, ok := t.names[name]; ok {
		return own
	}
	if len(t.names) >= maxNames {
		clear(t.names)
	}
	name = strings.Clone(name)
	t.names[name] = name
	return name
}

// lose ends a stream: what was asked on it has no answer. What was not sent waits for the next one, unless the agent
// could not be reached.
func (t *Client) lose(opened bool, err error) {
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
func (t *Client) awayLocked(err error) {
	if t.state != closed {
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
