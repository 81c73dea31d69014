package client

import (
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/reqcache"
)

// request is a decision that the hot path could not make: it has to be refilled,
// waited for, refused or learnt about.
//
// While it waits for one bucket it keeps what it took from others: what is taken is
// announced where it is billed, so no count is wrong meanwhile, and nothing is locked, so no two requests wait for each
// other. Putting everything back and trying again would instead lose its place
// whenever the buckets are contended, which is when it waits. All buckets that need an answer
// are asked at once, so that several cold ones cost one round trip.
//
// When many buckets are new there are as many requests as renewals, and so they are used again: request and end, which
// every request comes to, are the only ones to know.
type request struct {
	c     *Client
	n     int64
	attrs []limit.Attribute // the caller's, or a copy once it waits: see own
	legs  []leg
	taken []bool // by legs: the units are in hand
	said  []bool // by legs: they are announced with Hold
	// by legs: the window that the units are of; 0 without
	windows []int64

	waiters []*waiter // by legs: what waits; nil
	waiting int
	answers chan *waiter // has room for all that may wait
	spare   []*waiter    // that do not wait
	counted bool         // among the client's waiting requests
	timer   *time.Timer  // bounds the waiting for answers; nil before the first
	timed   bool         // it is in use
	over    bool

	reserves *Reservation // keeps what is in hand in the end; nil

	mode     limit.Mode // the switch as the limits were asked
	together bool       // it is one of several (AllowTogether), which may all be denied yet: it keeps what it has
	patient  bool       // it waits its turn, at every limit
	peeks    bool       // it takes nothing

	key       reqcache.Key
	remembers bool         // where it is allowed it is worth remembering
	owns      bool         // the attributes are its own
	under     *agent.Entry // of the soft limit asked last, whose bucket denied; nil
	endless   bool         // nobody will tell of its end: it passes limits of slots by

	before func() // called once, before it waits; nil
}

// waiter is what waits in a bucket for a request.
type waiter struct{ bucket.Waiter }

// request returns one of n units.
func (c *Client) request(n int64, attributes []limit.Attribute) *request {
	r, _ := c.requests.Get().(*request)
	if r == nil {
		r = &request{c: c}
	}
	r.n = n
	r.attrs = append(r.attrs[:0], attributes...)
	return r
}

// own copies what the caller may use again once the request waits, and another goroutine goes on with its memory.
func (r *request) own() {
	if r.owns {
		return
	}
	r.owns = true
	attributes := r.attrs
	size := 0
	for i := range attributes {
		size += len(attributes[i].Name) + len(attributes[i].Value)
	}
	var b strings.Builder
	b.Grow(size)
	for i := range attributes {
		b.WriteString(attributes[i].Name)
		b.WriteString(attributes[i].Value)
	}
	text := b.String()
	cut := func(n int) (s string) {
		s, text = text[:n], text[n:]
		return s
	}
	for i := range attributes {
		attributes[i] = limit.Attribute{Name: cut(len(attributes[i].Name)), Value: cut(len(attributes[i].Value))}
	}
}

// room sees that all of so many limits may answer before anybody listens. Nothing waits yet.
func (r *request) room(limits int) {
	if cap(r.answers) < limits {
		r.answers = make(chan *waiter, max(limits, 8))
		r.spare = nil // which tell the other
	}
}

// waiter returns one that tells the request of its answer.
func (r *request) waiter() *waiter {
	if last := len(r.spare) - 1; last >= 0 {
		w := r.spare[last]
		r.spare = r.spare[:last]
		return w
	}
	w, answers := new(waiter), r.answers
	w.Done = func(bucket.Verdict) { answers <- w }
	return w
}

// begin starts the time that the request may wait, once. It reports false when
// too many wait already.
func (r *request) begin() bool {
	if !r.count() {
		return false
	}
	switch {
	case r.timed:
	case r.timer == nil:
		r.timer = time.NewTimer(r.c.cfg.maxWait)
	default:
		r.timer.Reset(r.c.cfg.maxWait)
	}
	r.timed = true
	return true
}

// count counts the request among those that wait, once. It reports false when too
// many do already.
func (r *request) count() bool {
	if r.counted {
		return true
	}
	if r.c.waiting.Add(1) > int64(r.c.cfg.maxWaiting) {
		r.c.waiting.Add(-1)
		r.c.overloaded.Add(1)
		return false
	}
	r.c.waited.Add(1)
	r.counted = true
	r.own()
	if r.before != nil {
		r.before()
	}
	return true
}

// end ends the request: nobody has it in hand any more, and no bucket has a waiter of it.
func (r *request) end() {
	if r.timed {
		r.timer.Stop()
	}
	c := r.c
	if r.counted {
		c.waiting.Add(-1)
	}
	if r.waiting > 0 {
		return // handover.BeforeWait's function panicked: a bucket has waiters of it
	}
	clear(r.attrs)
	clear(r.legs[:cap(r.legs)])
	*r = request{
		c: c, attrs: r.attrs[:0], legs: r.legs[:0], taken: r.taken[:0], said: r.said[:0], windows: r.windows[:0], waiters: r.waiters[:0],
		answers: r.answers, spare: r.spare, timer: r.timer,
	}
	c.requests.Put(r)
}
