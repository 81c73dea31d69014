package sim

import (
	"container/heap"
	"context"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/f4ee788f/quota/internal/agent"
	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/memstore"
	"github.com/f4ee788f/quota/internal/limit"
)

// Times are microseconds of virtual time. The store's clock starts at epoch.
const (
	second = int64(1_000_000)
	epoch  = int64(1_760_000_000_000_000) // an edge of every window used here
)

type event struct {
	at  int64
	seq int64 // keeps equal times in order, so that a seed gives one history
	do  func()
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

// world is one run of a scenario.
type world struct {
	sc     Scenario
	rng    *rand.Rand
	now    int64
	seq    int64
	events queue
	store  *memstore.Store
	agents []*gateway
	m      *measure
}

// gateway is one agent with its copy of the scenario's one bucket.
type gateway struct {
	w        *world
	index    int
	name     string
	bucket   *agent.Bucket
	sending  bool  // a renewal is on its way
	planned  int64 // when the next look at the bucket is due
	failures int
	lost     bool
}

// Run simulates sc with the given seed.
func Run(sc Scenario, seed uint64) Result {
	w := &world{sc: sc, rng: rand.New(rand.NewPCG(seed, 1)), store: memstore.New(), m: newMeasure(sc)}
	for i := range sc.Agents {
		g := &gateway{w: w, index: i, name: "agent-" + strconv.Itoa(i), bucket: agent.NewBucket(&sc.Limit), planned: math.MaxInt64}
		w.agents = append(w.agents, g)
		w.nextArrival(g)
	}
	for len(w.events) > 0 {
		e := heap.Pop(&w.events).(event)
		if e.at > sc.Duration {
			break
		}
		w.now = e.at
		e.do()
	}
	return w.m.result()
}

func (w *world) after(d int64, do func()) {
	w.seq++
	heap.Push(&w.events, event{at: w.now + d, seq: w.seq, do: do})
}

// nextArrival schedules the agent's next request: a Poisson process whose rate
// follows the scenario.
func (w *world) nextArrival(g *gateway) {
	const idle = 20_000 // look again this soon while there is no demand
	rate := w.sc.Demand(g.index, w.now)
	if rate <= 0 {
		w.after(idle, func() { w.nextArrival(g) })
		return
	}
	d := int64(w.rng.ExpFloat64() / rate * float64(second))
	if d > idle && w.sc.Varies {
		// A process without memory may be drawn anew, so that a change of rate is seen soon.
		w.after(idle, func() { w.nextArrival(g) })
		return
	}
	w.after(d, func() {
		w.m.arrival(w.now)
		g.request()
		w.nextArrival(g)
	})
}

func (g *gateway) request() {
	w := g.w
	if g.bucket.Take(1) {
		w.m.admitted(w.now)
		return
	}
	switch v := g.bucket.Slow(w.now, 1, g.lost); v.Outcome {
	case agent.Admitted:
		w.m.admitted(w.now)
	case agent.Denied:
		w.m.denied()
	case agent.Wait:
		at := w.now
		waiter := &agent.Waiter{Units: 1}
		waiter.Done = func(v agent.Verdict) {
			w.m.waited(w.now - at)
			if v.Outcome == agent.Admitted {
				w.m.admitted(w.now)
			} else {
				w.m.denied()
			}
		}
		if !g.bucket.Enqueue(waiter) {
			w.m.denied()
		}
	}
	g.plan()
}

// plan makes sure that the bucket is looked at when it is due.
func (g *gateway) plan() {
	if g.sending {
		return
	}
	due := g.bucket.Due(g.w.now)
	if due == agent.Never {
		return
	}
	// Renewals gather for a moment, as in the SDK's loop.
	due = max(due, g.w.now+500)
	if due >= g.planned {
		return
	}
	g.planned = due
	g.w.after(due-g.w.now, func() {
		if g.planned != due || g.sending {
			return
		}
		g.planned = math.MaxInt64
		g.bucket.Expire(g.w.now, g.lost)
		if g.bucket.Due(g.w.now) > g.w.now {
			g.plan()
			return
		}
		g.send()
	})
}

func (g *gateway) send() {
	w := g.w
	g.sending = true
	g.bucket.Expire(w.now, g.lost)
	r := g.bucket.Renew(w.now, g.bucket.Unused())
	w.m.renewals++
	answered := false
	answer := func(a lease.Answer) {
		if answered {
			return
		}
		answered = true
		g.sending = false
		g.failures, g.lost = 0, false
		if a.Err != nil {
			g.fail()
			return
		}
		g.served(g.bucket.Apply(w.now, a.Grant))
		g.plan()
	}
	copies := 1
	if w.chance(w.sc.Duplicate) {
		copies = 2
	}
	for range copies {
		if w.chance(w.sc.Loss) {
			continue
		}
		w.after(w.latency(), func() {
			if w.sc.Away(w.now) {
				return
			}
			r := r
			r.Key, r.Holder, r.Now = "bucket", g.name, epoch+w.now
			r.Spec = w.sc.spec(epoch + w.now)
			if w.sc.Unguarded {
				r.Key += g.name
			}
			a := w.store.Renew(context.Background(), []lease.Renewal{r})[0]
			if w.chance(w.sc.Loss) {
				return
			}
			w.after(w.latency(), func() { answer(a) })
		})
	}
	timeout := 200_000 + w.rng.Int64N(20_000)
	if w.sc.Away(w.now) {
		timeout = 1_000 // refused at once
	}
	w.after(timeout, func() {
		if !answered {
			answered = true
			g.sending = false
			g.fail()
		}
	})
}

// fail waits and tries again; after two failures in a row the server counts as lost.
func (g *gateway) fail() {
	w := g.w
	g.failures++
	if g.failures >= 2 {
		g.lost = true
		g.served(g.bucket.Fail(w.now))
	}
	g.sending = true
	pause := int64(min(10_000<<min(g.failures, 6), 500_000))
	w.after(pause/2+w.rng.Int64N(pause/2), func() {
		g.sending = false
		g.send()
	})
}

func (g *gateway) served(waiters []*agent.Waiter) {
	for _, waiter := range waiters {
		waiter.Done(waiter.Verdict())
	}
}

func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

func (w *world) latency() int64 { return 700 + w.rng.Int64N(600) }

// spec is the scenario's limit as a server hands it to the store at now.
func (sc *Scenario) spec(now int64) lease.Spec {
	s := lease.Spec{
		Algorithm: sc.Limit.Algorithm, Units: sc.Limit.Rate.Units, Period: sc.Limit.Rate.Per.Microseconds(),
		Burst: sc.Limit.Burst, EpsilonPPM: sc.Limit.EpsilonPPM,
	}
	if s.Algorithm == limit.FixedWindow {
		s.WindowStart = now - now%s.Period
		s.WindowEnd = s.WindowStart + s.Period
		s.NextWindowEnd = s.WindowEnd + s.Period
	}
	return s
}
