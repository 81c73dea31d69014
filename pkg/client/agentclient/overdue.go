package agentclient

import (
	"context"
	"errors"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

var errSilent = errors.New("client: no answer within the longest wait")

// watch ends the waiting of questions whose answer is overdue, until ctx ends. An agent that says nothing
// for so long counts as away, and where it goes on for as long again the line is left: it may lead to nobody any
// more, as after a partition or when a host was replaced, which TCP takes a quarter of an hour to notice.
func (t *Client) watch(ctx context.Context) {
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

func (t *Client) overdue() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tick++
	end := func(q *question) bool {
		if t.tick-q.tick <= overdueTicks {
			return false
		}
		t.stats.Deadlined++
		q.decidedLocked(client.Decision{Reason: client.ReasonDeadline, RetryAfter: time.Second})
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
