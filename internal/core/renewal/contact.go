package renewal

import (
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/retry"
)

const (
	// lostAfter is how long calls fail until requests stop waiting for the server: on_outage decides them then.
	lostAfter = 400 * time.Millisecond
	// FirstRetry and LastRetry are the shortest and the longest wait after a call that failed.
	FirstRetry = 20 * time.Millisecond
	LastRetry  = time.Second
)

// contact is whether the server answers.
type contact struct {
	fails int   // calls in a row
	since int64 // when the first of them failed
	why   error // of the last of them
	next  int64 // when to call again
	lost  bool
}

// Failed says that a call was not answered, after so many microseconds.
func (r *Renewer) Failed(now int64, c *Call, took int64, why error) {
	r.count.Failed++
	if c.trip == nil {
		r.asks.ended(took)
	} else {
		r.calls.ended(took)
		r.window.failed(c.trip)
	}
	r.contacted(now, why)
	for _, e := range c.Entries {
		r.unanswered(e, now)
	}
}

// contacted notes what came of a call.
func (r *Renewer) contacted(now int64, err error) {
	c := &r.contact
	if err == nil {
		c.fails, c.next, c.why = 0, 0, nil
		if c.lost {
			c.lost = false
			r.window.found()
			r.calls.roundTrip, r.asks.roundTrip = 0, 0 // calls that failed are in them
			r.cfg.Owner.Contact(false, nil)
		}
		return
	}
	if c.fails == 0 {
		c.since = now
	}
	c.fails++
	c.why = err
	c.next = now + r.backoff(c.fails, FirstRetry, LastRetry)
	if c.lost {
		r.Lapse()
	}
	r.givesUp(now)
}

// givesUp finds the server lost when calls have failed for long enough, although another may be under way. It returns
// when that will be: Never if not by this.
func (r *Renewer) givesUp(now int64) int64 {
	c := &r.contact
	if c.fails == 0 || c.lost {
		return bucket.Never
	}
	if at := c.since + lostAfter.Microseconds(); now < at {
		return at
	}
	c.lost = true
	r.cfg.Owner.Contact(true, c.why)
	r.lost(now)
	return bucket.Never
}

// lost ends all waiting for the server.
func (r *Renewer) lost(now int64) {
	for _, e := range r.asked {
		e.Dequeue()
		if !e.Dead() {
			r.due.Set(e, now)
		}
	}
	r.asked = behind(r.asked, len(r.asked))
	var urgent []*agent.Entry // those who are served may ask the registry
	r.cfg.Registry.Each(func(e *agent.Entry) {
		if e.Lose(now) {
			urgent = append(urgent, e)
		}
	})
	slices.SortFunc(urgent, agent.Compare)
	for _, e := range urgent {
		bucket.Serve(e.Fail(now))
	}
	r.Lapse()
}

// untilLost shortens the wait for the next try where calls have failed for so long. So the try that finds the server
// lost comes soon after lostAfter. Then on_outage decides requests that wait, before they have waited for too long.
func (r *Renewer) untilLost(wait, failing int64) int64 {
	if left := lostAfter.Microseconds() - failing; left > 0 && wait > left {
		return left + retry.JitterBy(lostAfter/8, 1, r.cfg.Chance()).Microseconds()
	}
	return wait
}

// heard notes that a bucket's renewal was answered, but not with a lease. Its requests go on waiting, and it is asked
// for again after a while: soon where it was given up as lost.
func (r *Renewer) heard(e *agent.Entry, now int64) {
	line := e.Line()
	if e.Lost() {
		e.SetLost(false)
		line.Fails = 0
	}
	line.Since = 0
	line.Fails++
	line.Retry = now + r.backoff(int(line.Fails), 2*FirstRetry, LastRetry)
	e.SetLine(line)
}

// unanswered notes that a bucket's renewal was not answered. After a while no request waits for it any more: it is
// decided as in an outage.
func (r *Renewer) unanswered(e *agent.Entry, now int64) {
	line := e.Line()
	e.Flying = false
	if line.Since == 0 {
		line.Since = now
	}
	line.Fails++
	line.Retry = now + r.untilLost(r.backoff(int(line.Fails), FirstRetry, LastRetry), now-line.Since)
	e.SetLine(line)
	if now-line.Since >= lostAfter.Microseconds() || r.Lost() {
		e.SetLost(true)
		bucket.Serve(e.Fail(now))
	}
	r.Schedule(e, now)
}
