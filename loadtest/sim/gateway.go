package sim

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/renewal"
)

const (
	maxWait = second // as pkg/client has it: nobody waits longer for an answer
	// backlog is how many requests wait in a listener's queue while the process stands
	// still; more are refused, and are requests to nobody.
	backlog = 128
	// waking is how long a loop takes to notice that it is wanted.
	waking = 100
	// renewTimeout is how long a call may take at most, as pkg/client has it.
	renewTimeout = 2 * time.Second
)

// request is one request: units of a bucket.
type request struct {
	at    int64
	key   int
	units int64
	lasts int64 // of a limit of slots
}

// gateway is a process with an agent: the product's buckets and the product's renewals, under virtual time. It decides
// requests as pkg/client does, and owns its renewals as internal/core/session does.
type gateway struct {
	w     *world
	place int
	name  string
	skew  int64 // of its clock

	registry *agent.Registry
	buckets  []*held // by key; nil until it is asked for
	renewals *renewal.Renewer
	queue    []*agent.Entry // buckets that want the loop's attention
	wakes    int64          // when the loop goes on; 0 for not before something happens

	leaving bool // it gives its leases back, once no call is under way
	gone    bool // left or crashed

	pauses   []Span
	arrivals []request // that came while it stood still
	late     []func()  // what else it has to do once it goes on
}

// held is a gateway's copy of a bucket.
type held struct {
	*agent.Entry
	g       *gateway
	answers int // to renewals so far
}

func newGateway(w *world, place, life int) *gateway {
	g := &gateway{
		w: w, place: place, name: fmt.Sprintf("agent-%d/%d", place, life),
		registry: agent.NewRegistry(2 * w.sc.keys()), buckets: make([]*held, w.sc.keys()),
		skew: minute, // so that no clock shows a time before zero
	}
	g.registry.Adopt(w.rules)
	g.registry.Fleet(int64(cmp.Or(w.sc.Counted, w.sc.Agents)))
	g.renewals = renewal.New(renewal.Config{
		Registry: g.registry, Owner: g, Timeout: renewTimeout, Idle: forever, Chance: w.network.Float64,
	})
	g.renewals.Declare(0, noLoss)
	f := &w.sc.Faults
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

// forever is longer than any run.
const forever = 365 * 24 * time.Hour

// clock is the gateway's own: monotonic, and of no known beginning.
func (g *gateway) clock() int64 { return g.w.now + g.skew }

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
	arrivals, late := g.arrivals, g.late
	g.arrivals, g.late = nil, nil
	for _, r := range arrivals {
		r.at = g.w.now
		g.arrive(r)
	}
	for _, do := range late {
		do()
	}
}

func (g *gateway) bucket(key int) *held {
	if c := g.buckets[key]; c != nil {
		return c
	}
	set := g.registry.Find("")
	e, err := g.registry.Touch(set, &set.List, 0, []limit.Attribute{{Name: keyed, Value: strconv.Itoa(key)}}, g.clock())
	if err != nil {
		panic(err) // there is room for all keys
	}
	c := &held{Entry: e, g: g}
	g.buckets[key] = c
	return c
}

// keyOf returns which key a bucket is of.
func keyOf(e *agent.Entry) int {
	key, err := strconv.Atoi(e.Values()[0])
	if err != nil {
		panic(err) // gateway.bucket wrote it
	}
	return key
}

// arrive decides a request.
func (g *gateway) arrive(r request) {
	w := g.w
	if g.gone {
		return
	}
	if g.paused() {
		if len(g.arrivals) < backlog {
			g.arrivals = append(g.arrivals, r)
		}
		return
	}
	w.m.arrival(g.place, r)
	c := g.bucket(r.key)
	if until := c.Until(); c.Take(r.units) && c.InTime(r.units, until, g.clock) {
		c.admit(r)
		return
	}
	lost := g.renewals.Lost() || c.Lost()
	if r.units == 1 && !lost && !w.sc.queues() {
		if _, shut := c.Shut(g.clock()); shut {
			return
		}
	}
	v := c.Ask(g.clock(), r.units, lost, w.sc.queues())
	if v.Attend {
		g.attend(c.Entry)
	}
	switch v.Outcome {
	case bucket.Admitted:
		c.admit(r)
	case bucket.Wait:
		c.wait(r)
	}
}

// admit has a request begin, and end if it has a slot.
func (c *held) admit(r request) {
	g := c.g
	g.w.m.admit(g.place, r)
	if r.lasts == 0 {
		return
	}
	g.w.after(r.lasts, func() {
		g.w.m.finish(r)
		g.run(func() {
			bucket.Serve(c.Finish(r.units))
			if c.Surplus() {
				g.attend(c.Entry)
			}
		})
	})
}

// wait lets a request wait for a renewal's answer or its turn, for as long as pkg/client does
// for an answer.
func (c *held) wait(r request) {
	w := c.g.w
	before, done := c.answers, false
	waiter := &bucket.Waiter{Units: r.units}
	waiter.Done = func(v bucket.Verdict) {
		done = true
		w.m.waited(r, w.now-r.at, before == 0, c.answers-before)
		if v.Outcome == bucket.Admitted {
			c.admit(r)
		}
	}
	if w.sc.queues() {
		served, ok := c.Join(waiter)
		bucket.Serve(served)
		if !ok {
			return
		}
	} else if !c.Enqueue(waiter) {
		return
	}
	c.g.attend(c.Entry)
	w.after(maxWait, func() {
		if done {
			return
		}
		served, was := c.Abandon(waiter, true)
		bucket.Serve(served)
		if was {
			w.m.waited(r, maxWait, before == 0, c.answers-before)
		}
	})
}

// crash ends the process without a word. What its cells held is lost.
func (g *gateway) crash() {
	g.gone = true
	for _, c := range g.buckets {
		if c != nil {
			g.w.m.lost += c.State(g.clock()).Tokens
		}
	}
}

// leave ends the process in order: it gives its leases back.
func (g *gateway) leave() {
	g.leaving = true
	for _, c := range g.buckets {
		if c != nil {
			bucket.Serve(c.Dismiss())
		}
	}
	g.giveUp()
}

// giveUp gives the leases back, once no call is under way.
func (g *gateway) giveUp() {
	if !g.leaving || g.renewals.Flying() > 0 {
		return
	}
	var leased []*agent.Entry
	for _, c := range g.buckets {
		if c != nil && (c.State(g.clock()).Live || c.Untold()) {
			leased = append(leased, c.Entry)
		}
	}
	g.leaving = false
	g.renewals.GiveUp(leased)
}
