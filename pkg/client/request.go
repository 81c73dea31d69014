package client

import (
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
	"github.com/f4ee788f/quota/internal/core/reqcache"
)

// request is a decision that the hot path could not make. It goes through three steps: limits finds what applies to it,
// ask asks each limit's bucket, conclude waits for the answers and decides.
//
// While it waits for one bucket it keeps the units that it took from others. Units that may yet go back are announced
// where they are billed, so no count is wrong meanwhile. Nothing is locked, so no two requests wait for each other. All
// buckets that need an answer are asked at once, so that several cold ones cost one round trip.
//
// Requests are pooled, for a burst of new buckets brings as many requests. Only Client.request and end know of the
// pool.
type request struct {
	c     *Client
	n     int64             // its units of requests
	costs []Cost            // its other costs; the caller's, until it waits
	attrs []limit.Attribute // the caller's, until it waits; see own

	patient    bool         // it waits its turn at every limit
	peeks      bool         // it takes nothing
	endless    bool         // nobody tells when it ends: limits of slots are left out
	measured   bool         // it is over: what cannot be counted of it is left out (bookable)
	booked     bool         // it is over: a limit may make up to limit.MaxBooked units of it
	refunded   bool         // it is booked, and given back
	unweighed  bool         // it is over, and a limit has no weights for it
	together   bool         // others may deny it yet (AllowTogether): it keeps what it took
	reserves   *Reservation // takes over what it took; nil for none
	background bool         // nobody waits for it (try)
	key        reqcache.Key
	repeated   bool   // a request of this key came before: it is worth remembering
	before     func() // is called once, before it waits; nil for none

	set         *agent.Set    // what applies to it; nil where no limit is asked
	amounts     limit.Amounts // what it costs, in the order of the set's policy: see weigh
	mode        limit.Mode    // the operators' switch when the limits were asked
	claims      []claim
	decision    Decision // once it is decided
	unaccounted bool     // it is counted in Stats.Unaccounted

	waiting int                 // claims whose answer is still to come
	answers chan *bucket.Waiter // has room for all of them
	spare   []*bucket.Waiter    // to be used again; their Done sends to answers
	counted bool                // it is one of the client's waiting requests, and unless in the background the timer runs
	timer   *time.Timer         // bounds the wait for answers; nil before the first
}

// claim is a request's demand on one limit.
type claim struct {
	item   *match.Item
	entry  *agent.Entry   // the bucket asked
	n      int64          // units of it; with 0 it is not asked
	weighs *limit.Weights // by which it makes units of costs, where the item does
	costs  *limit.Costs   // their names
	under  *agent.Entry   // the soft limit's bucket, which denied and whose overage was asked; nil for none
	window int64          // the window that the units belong to; 0 without windows
	waiter *bucket.Waiter // waits in the bucket; nil for none
	taken  bool           // the units are in hand
	held   bool           // they are announced with Entry.Hold
	pinned bool           // the bucket is kept: see request.keep
	void   bool           // reserved: an operator's switch admitted the units, whether or not they were there
	stake  *bucket.Stake  // reserved: the journal's; nil for none
}

// request returns one of n units of requests, and of other costs.
func (c *Client) request(n int64, costs []Cost, attributes []limit.Attribute) *request {
	r, _ := c.requests.Get().(*request)
	if r == nil {
		r = &request{c: c}
	}
	r.n = n
	r.costs = append(r.costs[:0], costs...)
	r.attrs = append(r.attrs[:0], attributes...)
	return r
}

// end lets the request be used again. No bucket has a waiter of it any more.
func (r *request) end() {
	c := r.c
	switch {
	case r.counted && r.background:
		c.trying.Add(-1)
	case r.counted:
		r.timer.Stop()
		c.waiting.Add(-1)
	}
	if r.waiting > 0 {
		return // handover.BeforeWait's function panicked: a bucket has waiters of it
	}
	clear(r.attrs)
	clear(r.costs)
	clear(r.claims[:cap(r.claims)])
	*r = request{c: c, attrs: r.attrs[:0], costs: r.costs[:0], claims: r.claims[:0], answers: r.answers, spare: r.spare, timer: r.timer}
	c.requests.Put(r)
}

// own has the request keep nothing of its caller's.
func (r *request) own() {
	own(r.attrs)
	for i := range r.costs {
		r.costs[i].Name = strings.Clone(r.costs[i].Name)
	}
}

// own copies the attributes' text into one string of its own, so that the caller may use its memory again.
func own(attributes []limit.Attribute) {
	size := 0
	for _, a := range attributes {
		size += len(a.Name) + len(a.Value)
	}
	var all strings.Builder
	all.Grow(size)
	for _, a := range attributes {
		all.WriteString(a.Name)
		all.WriteString(a.Value)
	}
	text := all.String()
	for i := range attributes {
		a := &attributes[i]
		a.Name, text = text[:len(a.Name)], text[len(a.Name):]
		a.Value, text = text[:len(a.Value)], text[len(a.Value):]
	}
}

// room sees that so many limits may answer before anybody listens. Nothing waits yet.
func (r *request) room(limits int) {
	if cap(r.answers) < limits {
		r.answers = make(chan *bucket.Waiter, max(limits, 8))
	}
}

// waiter returns one that sends itself to the request's answers.
func (r *request) waiter() *bucket.Waiter {
	if last := len(r.spare) - 1; last >= 0 {
		w := r.spare[last]
		r.spare = r.spare[:last]
		return w
	}
	w := new(bucket.Waiter)
	w.Done = func(bucket.Verdict) { r.answers <- w }
	return w
}

// mayWait counts the request among those that wait, once, and starts the time that it may wait for answers. It reports
// false where too many wait.
func (r *request) mayWait() bool {
	c := r.c
	switch {
	case r.counted:
		return true
	case r.background: // it has no bound in time, and a bound of its own
		if r.counted = c.trying.Add(1) <= int64(c.cfg.maxWaiting); !r.counted {
			c.trying.Add(-1)
			return false
		}
		r.own()
		return true
	case c.waiting.Add(1) > int64(c.cfg.maxWaiting):
		c.waiting.Add(-1)
		c.overloaded.Add(1)
		return false
	}
	c.waited.Add(1)
	r.counted = true
	if r.timer == nil {
		r.timer = time.NewTimer(c.cfg.maxWait)
	} else {
		r.timer.Reset(c.cfg.maxWait)
	}
	r.own()
	if r.before != nil {
		r.before()
	}
	return true
}
