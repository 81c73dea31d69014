package agentclient

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

// overdueTicks is how finely a request's time is held against the longest wait: reading a clock for each would cost
// more than the rest.
const overdueTicks = 8

var errSilent = errors.New("client: no answer within the longest wait")

// question is a request that waits for its answer. Questions are used again. An abandoned one may still be queued.
type question struct {
	ask.Question
	tick     int64
	done     chan struct{} // has one when decision is there
	decision client.Decision
	sent     bool // it is not queued any more; guarded by Client.mu, as is
	over     bool // it is decided or abandoned
}

// question returns one of n units, and of costs beside them, for ask.
func (t *Client) question(n int64, costs []client.Cost, wait time.Duration, attributes []client.Attribute) *question {
	q, ok := t.free.Get().(*question)
	if !ok {
		q = &question{done: make(chan struct{}, 1)}
	}
	q.Units, q.Timeout, q.sent, q.over = n, wait.Microseconds(), false, false
	for _, a := range attributes {
		q.Attributes = append(q.Attributes, limit.Attribute(a))
	}
	for _, c := range costs {
		q.Costs = append(q.Costs, ask.Cost(c))
	}
	return q
}

// release lets a question be used again, to which nothing refers.
func (t *Client) release(q *question) {
	clear(q.Attributes) // which are the caller's
	clear(q.Costs)
	q.Attributes, q.Costs, q.decision = q.Attributes[:0], q.Costs[:0], client.Decision{}
	t.free.Put(q)
}

// ask queues a question. On false it is decided at once.
func (t *Client) ask(q *question) (d client.Decision, asked bool) {
	if q.Units < 0 || q.Units > limit.MaxUnits || !ask.Fits(q.Attributes, q.Costs) {
		return client.Decision{Reason: client.ReasonInvalid}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Asked++
	switch {
	case t.state == closed:
		return client.Decision{Reason: client.ReasonClosed}, false
	case t.state == away:
		return t.unknownLocked(q.Units), false
	case len(t.asked) >= t.cfg.maxWaiting:
		t.stats.Overloaded++
		return inASecond(client.ReasonOverloaded), false
	}
	t.last++
	q.ID, q.tick = t.last, t.tick
	t.asked[q.ID] = q
	t.queue = append(t.queue, q)
	if !t.flying {
		t.rouse()
	}
	return d, true
}

// rouse wakes the writer.
func (t *Client) rouse() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// abandon gives a question up whose caller's time is over. It reports false where the answer is there.
func (t *Client) abandon(q *question) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.over {
		return false
	}
	t.stats.Deadlined++
	t.forgetLocked(q)
	if q.sent {
		t.release(q)
	} else {
		clear(q.Attributes) // it is released when it leaves the queue
	}
	return true
}

// decideLocked answers a question, which its caller releases.
func (t *Client) decideLocked(q *question, d client.Decision) {
	q.decision = d
	t.forgetLocked(q)
	q.done <- struct{}{} // never full: it is decided once
}

// forgetLocked takes a question out that is over; nil for none. When it was the last, Close goes on.
func (t *Client) forgetLocked(q *question) {
	if q != nil {
		q.over = true
		delete(t.asked, q.ID)
	}
	if t.state == closed && len(t.asked) == 0 {
		t.drain()
	}
}

// unknownLocked decides a request that the agent cannot be asked about.
func (t *Client) unknownLocked(n int64) client.Decision {
	t.stats.Unknown++
	if t.cfg.failure == client.FailOpen {
		t.stats.Unaccounted += n
		return client.Decision{Allowed: true, Reason: client.ReasonUnknown}
	}
	return inASecond(client.ReasonUnknown)
}

// sweepLocked takes questions out of the queue that are abandoned, or for which decides reports true.
func (t *Client) sweepLocked(decides func(*question) bool) {
	t.queue = slices.DeleteFunc(t.queue, func(q *question) bool {
		if q.over {
			t.release(q)
			return true
		}
		return decides(q)
	})
}

// backLocked says that the agent is there.
func (t *Client) backLocked() {
	t.tried()
	if t.state == away {
		t.log.Info("the quota-agent is back")
		t.state = there
	}
	t.stats.Away, t.stats.Unreachable, t.stats.UnreachableSince = false, "", time.Time{}
}

// awayLocked decides all waiting requests without the agent, and those asked until it is back.
func (t *Client) awayLocked(err error) {
	t.tried()
	if t.state == there {
		t.log.Warn("the quota-agent is away", "error", err)
		t.state = away
	}
	if !t.stats.Away {
		t.stats.UnreachableSince = time.Now()
	}
	t.stats.Away, t.stats.Unreachable = true, t.cfg.connect.Explain(err)
	t.sweepLocked(func(q *question) bool {
		t.decideLocked(q, t.unknownLocked(q.Units))
		return true
	})
}

// watch calls overdue until ctx ends.
func (t *Client) watch(ctx context.Context) {
	ticker := time.NewTicker(max(t.cfg.maxWait/overdueTicks, time.Millisecond))
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
			t.overdue()
		case <-ctx.Done():
		}
	}
}

// overdue ends the wait of questions whose answer is overdue. An agent that says nothing for so long counts as away. If
// it stays silent for as long again, the line is left. It may lead to nobody any more, as after a partition or when a
// host was replaced. TCP takes a quarter of an hour to notice.
func (t *Client) overdue() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tick++
	end := func(q *question) bool {
		if t.tick-q.tick <= overdueTicks {
			return false
		}
		t.stats.Deadlined++
		t.decideLocked(q, inASecond(client.ReasonDeadline))
		return true
	}
	t.sweepLocked(end)
	for _, q := range t.asked {
		end(q)
	}
	silent := int64(0)
	if t.flying || t.ending {
		silent = t.tick - t.since
	}
	if silent > overdueTicks && t.state == there {
		t.awayLocked(errSilent) // an answer brings it back, or a new connection
	}
	if silent > 2*overdueTicks && t.state == away && t.leave != nil {
		t.leave() // the questions sent are decided already
	}
}

// inASecond denies a request that may come again soon.
func inASecond(reason client.Reason) client.Decision {
	return client.Decision{Reason: reason, RetryAfter: time.Second}
}
