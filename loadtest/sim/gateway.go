package sim

import (
	"fmt"

	"github.com/f4ee788f/quota/internal/core/bucket"
)

const (
	maxWait = second // as pkg/client has it: nobody waits longer for an answer
	// backlog is how many requests wait in a listener's queue while the process stands
	// still; more are refused, and are requests to nobody.
	backlog = 128
)

// request is one request: units of a bucket.
type request struct {
	at    int64
	key   int
	units int64
	lasts int64 // of a limit of slots
}

// gateway is a process with an agent: its copies of the buckets, and what internal/core/session
// has around them, under virtual time (loop.go).
type gateway struct {
	w     *world
	place int
	name  string
	held  []*line // by key; nil until it is asked for
	skew  int64   // of its clock

	loop loop
	gone bool  // left or crashed
	lost int64 // the last loss that it was told of

	pauses []Span
	queue  []request // that came while it stood still
	late   []func()  // what else it has to do once it goes on
}

// line is a bucket's copy, and where its renewals stand.
type line struct {
	g      *gateway
	key    int
	bucket *bucket.Bucket

	due     int64 // when it is looked at next
	ready   bool  // it is in the loop's queue
	flying  bool  // a call carries its renewal
	answers int   // so far
	fails   int
	failing int64 // since when
	hungry  int   // answers in a row that left requests waiting
	retryAt int64 // not to be asked for before
	forced  int64 // to be renewed at this time although nothing presses; 0 for no
	lost    bool
}

func newGateway(w *world, place, life int) *gateway {
	g := &gateway{w: w, place: place, name: fmt.Sprintf("agent-%d/%d", place, life), held: make([]*line, w.sc.keys())}
	g.loop.g = g
	f := &w.sc.Faults
	g.skew = minute // so that no clock shows a time before zero
	if f.Skew != nil {
		g.skew += f.Skew(place)
	}
	if f.Pauses != nil {
		g.pauses = f.Pauses(place)
	}
	for _, p := range g.pauses {
		w.at(p.To, g.resume)
	}
	return g
}

// clock is the gateway's own: monotonic, and of no known beginning.
func (g *gateway) clock() int64 { return g.w.now + g.skew }

// at turns a time of the gateway's clock into virtual time.
func (g *gateway) at(t int64) int64 { return t - g.skew }

func (g *gateway) paused() bool {
	for _, p := range g.pauses {
		if p.holds(g.w.now) {
			return true
		}
	}
	return false
}

// run does what the process does, once it can.
func (g *gateway) run(do func()) {
	switch {
	case g.gone:
	case g.paused():
		g.late = append(g.late, do)
	default:
		do()
	}
}

// resume goes on after a pause: requests first, for they meet cells that nobody
// has emptied yet.
func (g *gateway) resume() {
	if g.gone {
		return
	}
	queue, late := g.queue, g.late
	g.queue, g.late = nil, nil
	for _, r := range queue {
		r.at = g.w.now
		g.arrive(r)
	}
	for _, do := range late {
		do()
	}
}

func (g *gateway) line(key int) *line {
	l := g.held[key]
	if l == nil {
		l = &line{g: g, key: key, bucket: bucket.Of(&g.w.sc.Limit), due: bucket.Never}
		g.held[key] = l
	}
	return l
}

// arrive decides a request.
func (g *gateway) arrive(r request) {
	w := g.w
	if g.gone {
		return
	}
	if g.paused() {
		if len(g.queue) < backlog {
			g.queue = append(g.queue, r)
		}
		return
	}
	w.m.arrival(g.place, r)
	l := g.line(r.key)
	if l.bucket.Take(r.units) {
		l.admit(r)
		return
	}
	switch v := l.bucket.Ask(g.clock(), r.units, g.loop.lost || l.lost, w.sc.queues()); v.Outcome {
	case bucket.Admitted:
		l.admit(r)
	case bucket.Wait:
		l.wait(r)
	}
	l.plan()
}

// admit has a request begin, and end if it has a slot.
func (l *line) admit(r request) {
	l.g.w.m.admit(l.g.place, r)
	if r.lasts == 0 {
		return
	}
	l.g.w.after(r.lasts, func() {
		l.g.w.m.finish(r)
		l.g.run(func() {
			serve(l.bucket.Finish(r.units))
			l.bucket.Surplus()
			l.plan()
		})
	})
}

// wait lets a request wait for a renewal's answer or its turn, for as long as pkg/client does
// for an answer.
func (l *line) wait(r request) {
	w := l.g.w
	before := l.answers
	waiter := &bucket.Waiter{Units: r.units}
	done := false
	waiter.Done = func(v bucket.Verdict) {
		done = true
		w.m.waited(r, w.now-r.at, before == 0, l.answers-before)
		if v.Outcome == bucket.Admitted {
			l.admit(r)
		}
	}
	if w.sc.queues() {
		served, ok := l.bucket.Join(waiter)
		serve(served)
		if !ok {
			return
		}
	} else if !l.bucket.Enqueue(waiter) {
		return
	}
	w.after(maxWait, func() {
		if done {
			return
		}
		served, was := l.bucket.Abandon(waiter, true)
		serve(served)
		if was {
			w.m.waited(r, maxWait, before == 0, l.answers-before)
		}
	})
}

// crash ends the process without a word. What its cells held is lost.
func (g *gateway) crash() {
	g.gone = true
	for _, l := range g.held {
		if l != nil {
			g.w.m.lost += l.bucket.State(g.clock()).Tokens
		}
	}
}

// leave ends the process in order: it gives its leases back.
func (g *gateway) leave() {
	g.loop.leaving = true
	for _, l := range g.held {
		if l == nil {
			continue
		}
		serve(l.bucket.Dismiss())
		if !l.flying {
			l.push()
		}
	}
	g.loop.rouse()
}

func serve(waiters []*bucket.Waiter) {
	for _, waiter := range waiters {
		waiter.Done(waiter.Verdict())
	}
}
