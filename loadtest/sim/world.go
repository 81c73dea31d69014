package sim

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// start is when runs begin that do not say otherwise: an edge of every short window.
var start = time.Unix(1_760_000_000, 0).UTC()

// world is one run of a scenario.
type world struct {
	sc     *Scenario
	seed   uint64
	epoch  int64 // Unix microseconds of virtual time zero
	now    int64
	seq    int64
	events queue
	// Arrivals have a random source of their own, so that leasing does not change them.
	arrivals *rand.Rand
	network  *rand.Rand
	rules    *limit.Rules // the scenario's limit
	store    *store
	gateways []*gateway // by index: who has that place now
	m        *measure
}

// Run simulates sc with the given seed.
func Run(sc Scenario, seed uint64) Result {
	if sc.Start.IsZero() {
		sc.Start = start
	}
	w := &world{
		sc: &sc, seed: seed, epoch: sc.Start.UnixMicro(),
		arrivals: rand.New(rand.NewPCG(seed, 1)), network: rand.New(rand.NewPCG(seed, 2)),
	}
	w.rules = sc.rules()
	w.store = &store{w: w, buckets: make(map[bucketID]*stored)}
	w.m = newMeasure(w)
	for i := range sc.Agents {
		g := newGateway(w, i, 0)
		w.gateways = append(w.gateways, g)
		w.nextArrival(i)
	}
	w.plan()
	for len(w.events) > 0 {
		e := w.events.pop()
		if e.at > sc.Duration && e.do == nil {
			continue // what waits is still decided, but no more comes
		}
		if e.at > sc.Duration+maxWait {
			break
		}
		w.now = e.at
		if e.do != nil {
			e.do()
		} else {
			w.arrive(e.place)
		}
	}
	return w.m.result()
}

func (w *world) at(t int64, do func()) {
	w.seq++
	w.events.push(event{at: t, seq: w.seq, do: do})
}

func (w *world) after(d int64, do func()) { w.at(w.now+d, do) }

// plan schedules the events that do not depend on agents.
func (w *world) plan() {
	f := &w.sc.Faults
	for _, c := range f.Crashes {
		w.at(c.At, func() { w.gateways[c.Agent].crash() })
	}
	for _, c := range f.Forgets {
		w.at(c.At, func() { w.store.forget(c.Keys) })
		if !w.sc.Faults.Untold {
			w.at(c.At+noticed, func() { w.tell(c.At) })
		}
	}
	if f.Churn.Every > 0 {
		w.at(f.Churn.Every, func() { w.churn(1) })
	}
	w.at(w.m.step, w.sample)
}

// churn replaces the next agent in turn.
func (w *world) churn(n int) {
	i := n % len(w.gateways)
	old := w.gateways[i]
	w.gateways[i] = newGateway(w, i, n)
	if w.sc.Faults.Churn.Crash {
		old.crash()
	} else {
		old.leave()
	}
	w.after(w.sc.Faults.Churn.Every, func() { w.churn(n + 1) })
}

func (w *world) sample() {
	w.m.sample(w.store.out())
	if w.now < w.sc.Duration {
		w.after(w.m.step, w.sample)
	}
}

// nextArrival schedules the next request at place i: a Poisson process whose rate follows the scenario.
func (w *world) nextArrival(i int) {
	const look = 20 * millisecond // where the rate changes it is looked up anew this often
	d, real := look, false
	if rate := w.sc.Demand(i, w.now); rate > 0 {
		// The process has no memory and may be drawn again, so that a change takes effect soon.
		if drawn := int64(w.arrivals.ExpFloat64() / rate * float64(second)); drawn <= look || !w.sc.Varies {
			d, real = drawn, true
		}
	}
	w.seq++
	e := event{at: w.now + d, seq: w.seq, place: i}
	if !real {
		e.do = func() { w.nextArrival(i) }
	}
	w.events.push(e)
}

// arrive has a request come to place i.
func (w *world) arrive(i int) {
	r := request{units: 1, at: w.now}
	if w.sc.Key != nil {
		r.key = w.sc.Key(w.arrivals, i)
	}
	if w.sc.Units != nil {
		r.units = w.sc.Units(w.arrivals)
	}
	if w.sc.Lasts != nil {
		r.lasts = w.sc.Lasts(w.arrivals)
	}
	w.gateways[i].arrive(r)
	w.nextArrival(i)
}

func chance(r *rand.Rand, p float64) bool { return p > 0 && r.Float64() < p }

// latency is the latency of one way.
func (w *world) latency() int64 { return oneWay(w.network, w.sc.Faults.roundTrip()) }

// oneWay is half a round trip, three tenths either way.
func oneWay(r *rand.Rand, trip int64) int64 {
	half := trip / 2
	return half*7/10 + r.Int64N(half*6/10)
}

// RunAll simulates the scenarios, as many at a time as there are processors. The results
// have the scenarios' order.
func RunAll(scenarios []Scenario, seed uint64) []Result {
	results := make([]Result, len(scenarios))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(scenarios)) {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(scenarios) {
					return
				}
				results[i] = Run(scenarios[i], seed)
			}
		})
	}
	workers.Wait()
	return results
}
