package explore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/renewal"
)

const (
	millisecond = 1_000
	second      = 1_000_000
	begin       = 60 * second            // of virtual time
	epoch       = 1_760_000_000 * second // the store's clock at virtual time zero: an edge of every window here
	oneWay      = 1 * millisecond        // of a message
	maxWait     = 1 * second             // as pkg/client has it
	mostKept    = 8                      // calls of an agent that may still come to the server
	noticed     = 250 * millisecond      // until servers notice that the store forgot
)

// world is a few agents, one bucket in a store, and the network between them, in virtual time.
type world struct {
	c      *setting
	now    int64
	agents []*gateway
	state  *lease.State
	before *lease.State // as it was before the last write

	forgets []int64 // when the store forgot
	hasty   bool    // an agent renewed after that, before servers noticed
	slowest int64   // the longest that an answer was on its way
	hist    []admission
	story   *strings.Builder // nil unless it is told
}

// admission is units that an agent admitted.
type admission struct {
	at, units int64
	agent     int
	alone     bool  // out of contact
	ended     int64 // of a slot; 0 while it is in use
	lapsed    bool  // of a slot: the store knew nothing of it for longer than it keeps slots
}

// gateway is an agent with the product's loop. pkg/client and internal/core/session do what it does around that.
type gateway struct {
	w        *world
	i        int
	registry *agent.Registry
	entry    *agent.Entry
	loop     *renewal.Renewer
	queued   bool
	wakes    int64 // when the loop goes on
	waits    []*request
	link     link
	fate     fate    // of its next call
	calls    []*call // that a message of may still arrive, oldest first
	tells    int64   // when it hears that the store forgot; 0 for not
	loss     int64
	slots    int   // in use
	renewed  int64 // when the store last executed a renewal of it
}

// link is what the network does with an agent's calls.
type link uint8

const (
	fine link = iota // they are executed and answered at once
	held             // they arrive when an event says so: the server hangs
	cut              // they are refused
	deaf             // they are executed, and the answers are lost
)

// fate is what the network does with one call.
type fate struct {
	name        string
	there, back int64 // how long it takes to the server, and its answer to the agent; never: it is lost
	again       int64 // how long after it came first it comes to the server once more; 0 for not
}

const never = 1 << 60

// call is a call under way, or one that the agent gave up and a server may still execute.
type call struct {
	*renewal.Call
	renewals []lease.Renewal
	sent     int64
	over     bool // the agent has its answer, or waits no more
	executed int64
	answer   lease.Answer
	at       int64 // when what happens next happens by itself: 0 for never
	back     int64 // how long its answer takes
	again    int64 // when it comes to the server once more; 0 for not
}

// request is one that waits.
type request struct {
	waiter bucket.Waiter
	until  int64
	done   bool
}

func newWorld(c *setting) *world {
	w := &world{c: c, now: begin, state: new(lease.State)}
	for i := range c.agents {
		g := &gateway{w: w, i: i, registry: c.registry()}
		g.loop = renewal.New(renewal.Config{
			Registry: g.registry, Owner: g, Timeout: 2 * time.Second, Idle: time.Hour, Chance: func() float64 { return 0.5 },
		})
		g.loop.Declare(0, 1) // what a server says of a store that lost nothing
		set := g.registry.Find("")
		e, err := g.registry.Touch(set, &set.List, 0, []limit.Attribute{{Name: "key", Value: "k"}}, w.now)
		if err != nil {
			panic(err)
		}
		g.entry = e
		w.agents = append(w.agents, g)
	}
	return w
}

// registry returns one without buckets. A new one takes longer than a sequence of events.
func (c *setting) registry() *agent.Registry {
	if n := len(c.spare); n > 0 {
		r := c.spare[n-1]
		c.spare = c.spare[:n-1]
		return r
	}
	r := agent.NewRegistry(2)
	r.Adopt(c.rules)
	r.Fleet(int64(c.agents))
	return r
}

// end gives the registries up to other worlds.
func (w *world) end() {
	for _, g := range w.agents {
		g.entry.Flying = false
		g.entry.Dequeue()
		g.entry.Dismiss()
		if w.c.slots() {
			g.entry.Finish(int64(g.slots))
		}
		g.entry.Forget()
		if g.registry.Drop(g.entry, func(*agent.Entry) {}) {
			w.c.spare = append(w.c.spare, g.registry)
		}
	}
}

func (w *world) tell(format string, a ...any) {
	if w.story != nil {
		fmt.Fprintf(w.story, "  %8.3f s  ", float64(w.now-begin)/1e6)
		fmt.Fprintf(w.story, format+"\n", a...)
	}
}

// run lets everything happen that happens by itself until then.
func (w *world) run(to int64) {
	for {
		next, do := w.next()
		if next > to {
			w.now = to
			return
		}
		w.now = max(w.now, next)
		do()
	}
}

// next is what happens next by itself, and when.
func (w *world) next() (at int64, do func()) {
	at = bucket.Never
	try := func(t int64, f func()) {
		if t > 0 && t < at {
			at, do = t, f
		}
	}
	for _, g := range w.agents {
		for _, c := range g.calls {
			try(c.at, func() { g.arrives(c) })
			try(c.again, func() { c.again = 0; g.execute(c) })
			if !c.over {
				try(c.sent+c.Patience.Microseconds(), func() { g.fails(c, "patience is over") })
			}
		}
		for _, r := range g.waits {
			try(r.until, func() { g.abandon(r) })
		}
		try(g.tells, g.hears)
		try(g.wakes, g.step)
	}
	return at, do
}

// ask has n requests of so many units come.
func (g *gateway) ask(n, units int64) {
	w := g.w
	var admitted, denied, waits int64
	for range n {
		lost := g.lost()
		ok := g.entry.Take(units)
		if !ok && units == 1 && !lost {
			if _, shut := g.entry.Shut(w.now); shut {
				denied++
				continue
			}
		}
		out := bucket.Admitted
		if !ok {
			v := g.entry.Ask(w.now, units, lost, w.c.queues())
			if out = v.Outcome; v.Attend {
				g.attend()
			}
		}
		switch out {
		case bucket.Admitted:
			admitted += units
			g.admit(units)
		case bucket.Wait:
			if g.wait(units) {
				waits += units
			} else {
				denied += units
			}
		default:
			denied += units
		}
	}
	w.tell("agent %d is asked for %d × %d: %d admitted, %d denied, %d wait", g.i, n, units, admitted, denied, waits)
	g.loops()
}

func (g *gateway) admit(units int64) {
	w := g.w
	if w.c.slots() {
		g.slots += int(units)
	}
	a := admission{at: w.now, units: units, agent: g.i, alone: g.lost(), lapsed: g.silent()}
	if n := len(w.hist); n > 0 && !w.c.slots() && w.hist[n-1].at == a.at && w.hist[n-1].agent == g.i && w.hist[n-1].alone == a.alone {
		w.hist[n-1].units += units
		return
	}
	w.hist = append(w.hist, a)
}

// lost reports whether the agent knows that it is out of contact.
func (g *gateway) lost() bool { return g.loop.Lost() || g.entry.Lost() }

// silent reports whether the store has heard nothing of the agent for longer than it surely keeps its slots.
func (g *gateway) silent() bool { return g.w.now >= g.renewed+second }

// lapse leaves the agent's slots out of account: the store knows nothing of them.
func (w *world) lapse(of *gateway) {
	for i := range w.hist {
		if a := &w.hist[i]; w.agents[a.agent] == of && a.ended == 0 {
			a.lapsed = true
		}
	}
}

func (g *gateway) wait(units int64) bool {
	r := &request{until: g.w.now + maxWait}
	r.waiter.Units = units
	r.waiter.Done = func(v bucket.Verdict) {
		r.done = true
		if v.Outcome == bucket.Admitted {
			g.w.tell("agent %d admits %d that waited", g.i, units)
			g.admit(units)
		}
	}
	g.waits = append(g.waits, r)
	if g.w.c.queues() {
		served, ok := g.entry.Join(&r.waiter)
		bucket.Serve(served)
		if !ok {
			g.waits = g.waits[:len(g.waits)-1]
			return false
		}
	} else if !g.entry.Enqueue(&r.waiter) {
		g.waits = g.waits[:len(g.waits)-1]
		return false
	}
	g.attend()
	return true
}

func (g *gateway) abandon(r *request) {
	served, was := g.entry.Abandon(&r.waiter, true)
	if was {
		r.done = true
		g.w.tell("agent %d: a request waits no more", g.i)
	}
	bucket.Serve(served)
	g.loops()
}

// finish ends the agent's oldest request of a slot.
func (g *gateway) finish() {
	for i := range g.w.hist {
		if a := &g.w.hist[i]; a.agent == g.i && a.ended == 0 {
			a.ended = g.w.now
			g.slots -= int(a.units)
			g.w.tell("agent %d: a request of %d ends", g.i, a.units)
			bucket.Serve(g.entry.Finish(a.units))
			if g.entry.Surplus() {
				g.attend()
			}
			break
		}
	}
	g.loops()
}

func (g *gateway) attend() {
	if g.entry.Queue() {
		g.queued = true
	}
}

// loops has the loop look at what came, and drops requests that wait no more.
func (g *gateway) loops() {
	g.waits = slices.DeleteFunc(g.waits, func(r *request) bool { return r.done })
	if g.queued {
		g.step()
	}
}

// step is a turn of the loop.
func (g *gateway) step() {
	g.wakes = 0
	if g.queued {
		g.queued = false
		g.loop.Attend(g.w.now, []*agent.Entry{g.entry})
	}
	if next := g.loop.Step(g.w.now); next != bucket.Never && (g.wakes == 0 || next < g.wakes) {
		g.wakes = max(next, g.w.now+1)
	}
	g.waits = slices.DeleteFunc(g.waits, func(r *request) bool { return r.done })
}

// Send starts a call.
func (g *gateway) Send(rc *renewal.Call) {
	w := g.w
	c := &call{Call: rc, renewals: slices.Clone(rc.Renewals), sent: w.now}
	for i := range c.renewals {
		c.renewals[i].Key, c.renewals[i].Holder = "bucket", fmt.Sprint("agent-", g.i)
		c.renewals[i].Spec = w.c.spec(epoch + w.now) // by the server's clock, before the store's
		c.renewals[i].Memory = w.memory()
	}
	g.calls = append(g.calls, c)
	if n := len(g.calls); n > mostKept { // of those that are over, the last may come once more
		g.calls = slices.Delete(g.calls, 0, n-mostKept)
	}
	if len(c.renewals) > 0 {
		r := &c.renewals[0]
		w.tell("agent %d renews: number %d, admitted %d, held %d, waiting %d, in use %d%s", g.i, r.Number-r.Began, r.Admitted, r.Held, r.Waiting, r.InUse, map[bool]string{true: ", final"}[r.Final])
	} else {
		w.tell("agent %d tries the server", g.i)
	}
	switch f := g.fate; {
	case g.link == held:
	case g.link == fine && f.name != "":
		c.at, c.back, g.fate = w.now+f.there, f.back, fate{}
		if f.again > 0 {
			c.again = c.at + f.again
		}
	default:
		c.at, c.back = w.now+oneWay, oneWay
	}
}

// arrives is what happens by itself to a call: it comes to the server, or its answer to the agent.
func (g *gateway) arrives(c *call) {
	c.at = 0
	switch {
	case c.executed > 0:
		g.answered(c)
	case g.link == cut:
		g.fails(c, "it is refused")
		g.drop(c)
	default:
		g.execute(c)
		if g.link != deaf {
			c.at = g.w.now + max(c.back, oneWay)
		}
	}
}

func (g *gateway) drop(c *call) {
	g.calls = slices.DeleteFunc(g.calls, func(o *call) bool { return o == c })
}

// execute has the server execute a call, again if it did.
func (g *gateway) execute(c *call) {
	w := g.w
	again := c.executed > 0
	c.executed = w.now
	if n := len(w.forgets); n > 0 && w.now < w.forgets[n-1]+noticed {
		w.hasty = true
	}
	if g.silent() {
		w.lapse(g)
	}
	g.renewed = w.now
	for i := range c.renewals {
		r := &c.renewals[i]
		r.Now = epoch + w.now
		if err := r.Check(); err != nil {
			panic(err)
		}
		if w.c.fallsBack {
			w.before = copied(w.state)
		}
		w.state.Sweep(r.Now)
		grant, err := w.state.Renew(r.Now, r)
		c.answer = lease.Answer{Grant: grant, Err: err}
		what := "executes"
		if again {
			what = "executes again"
		}
		if err != nil {
			w.tell("the store %s agent %d's number %d: %v", what, g.i, r.Number-r.Began, err)
			continue
		}
		w.tell("the store %s agent %d's number %d: %d tokens, %.2f/s up to %d, for %d ms%s; %.2f left, %.2f/s out",
			what, g.i, r.Number-r.Began, grant.Tokens, float64(grant.Trickle)/1e6, grant.Pile, grant.TTL/1000, more(&grant),
			float64(w.state.Level)/1e6, float64(w.state.Out.Trickle)/1e6)
	}
}

// more is what few grants have.
func more(g *lease.Grant) (s string) {
	if g.Next > 0 {
		s += fmt.Sprintf(", %d of the next window", g.Next)
	}
	if g.DenyFor > 0 {
		s += fmt.Sprintf(", deny for %d ms", g.DenyFor/1000)
	}
	if g.Fallback > 0 {
		s += fmt.Sprintf(", fallback %.2f/s", float64(g.Fallback)/1e6)
	}
	return s
}

// answered has the answer come to the agent.
func (g *gateway) answered(c *call) {
	w := g.w
	if c.over {
		return
	}
	c.over = true
	if !w.c.exact {
		w.slowest = max(w.slowest, w.now-c.executed)
	}
	w.tell("agent %d has its answer", g.i)
	g.loop.Answered(w.now, c.Call, w.now-c.sent, func(int) lease.Answer { return c.answer })
	g.step()
}

// fails has the agent find that a call is not answered. A server may execute it still.
func (g *gateway) fails(c *call, why string) {
	w := g.w
	c.over = true
	w.tell("agent %d: a call failed: %s", g.i, why)
	g.loop.Failed(w.now, c.Call, w.now-c.sent, errFailed)
	g.step()
}

var errFailed = errors.New("explore: the call was not answered")

// forget has the store forget the bucket.
func (w *world) forget() {
	w.state = new(lease.State)
	w.forgets = append(w.forgets, w.now)
	w.tell("the store forgets everything")
	if !w.c.untold {
		for _, g := range w.agents {
			g.tells, g.loss = w.now+noticed, 1+w.now
		}
	}
}

// fallBack has the store lose its last write, as a failover may. Servers do not notice that.
func (w *world) fallBack() {
	w.state, w.before = w.before, nil
	w.forgets = append(w.forgets, w.now)
	w.tell("the store loses its last write")
}

// copied returns a bucket of its own.
func copied(s *lease.State) *lease.State {
	to := *s
	to.Log, to.Ring = slices.Clone(s.Log), slices.Clone(s.Ring)
	to.Holders = make(map[string]*lease.Record, len(s.Holders))
	for name, r := range s.Holders {
		own := *r
		to.Holders[name] = &own
	}
	return &to
}

// hears tells the agent that the store forgot.
func (g *gateway) hears() {
	if g.tells = 0; g.link == cut || g.link == held {
		g.tells = g.w.now + second
		return
	}
	g.w.tell("agent %d hears that the store forgot", g.i)
	g.loop.Declare(g.w.now, g.loss)
	g.step()
}

// memory is what the server knows of the store's memory.
func (w *world) memory() lease.Memory {
	if n := len(w.forgets); n > 0 && !w.c.untold && w.now >= w.forgets[n-1]+noticed {
		at := w.forgets[n-1] + noticed
		return lease.Memory{Since: epoch + at, Lost: w.now < at+lease.LongTerm}
	}
	return lease.Memory{}
}

// Questions asks for no tenants.
func (g *gateway) Questions(int64) ([]*agent.Tenant, int64) { return nil, bucket.Never }

// Contact tells of it.
func (g *gateway) Contact(lost bool, _ error) {
	g.w.tell("agent %d is %s contact", g.i, map[bool]string{true: "out of", false: "in"}[lost])
}

// Granted needs nothing: the network saw the answer.
func (g *gateway) Granted(*agent.Entry, *bucket.Answered, *lease.Grant) {}

// Exceeded is not counted: the oracle counts what was admitted.
func (g *gateway) Exceeded(*agent.Entry, renewal.Excess) {}

// Refused stops the test: the loop sends what breaks the protocol.
func (g *gateway) Refused(_ *agent.Entry, why error) { panic(why) }

// Drop keeps the bucket.
func (g *gateway) Drop(*agent.Entry) bool { return false }
