package bucket

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

// A world is a few agents on one bucket of the store in process, in virtual time, with calls
// that take a millisecond or two. (loadtest/sim has the large ones, with faults.)
type world struct {
	now    int64
	seq    int64
	events worldEvents
	store  *memstore.Store
	limit  limit.Limit
	rng    *rand.Rand
	way    int64 // that a message takes, beside half a millisecond to one
	nodes  []*node
}

type worldEvent struct {
	at, seq int64
	do      func()
}

type worldEvents []worldEvent

func (e worldEvents) Len() int { return len(e) }
func (e worldEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e worldEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *worldEvents) Push(x any)   { *e = append(*e, x.(worldEvent)) }
func (e *worldEvents) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

const worldEpoch = 1_800_000_000_000_000

func newWorld(l limit.Limit, nodes int) *world {
	w := &world{now: 1_000_000, store: memstore.New(), limit: l, rng: rand.New(rand.NewPCG(5, 5))}
	for i := range nodes {
		w.nodes = append(w.nodes, &node{w: w, name: fmt.Sprint("agent-", i), bucket: Of(&l)})
	}
	return w
}

func (w *world) after(d int64, do func()) {
	w.seq++
	heap.Push(&w.events, worldEvent{w.now + d, w.seq, do})
}

// runTo lets everything happen until then.
func (w *world) runTo(at int64) {
	for len(w.events) > 0 && w.events[0].at <= at {
		e := heap.Pop(&w.events).(worldEvent)
		w.now = e.at
		e.do()
	}
	w.now = at
}

type node struct {
	w       *world
	name    string
	bucket  *Bucket
	flying  bool
	crashed bool
	planned int64
	calls   int
}

// look does what pkg/client's loop does with a bucket.
func (n *node) look() {
	if n.crashed {
		return
	}
	w := n.w
	served, _ := n.bucket.Tick(w.now, false)
	n.deliver(served)
	due := n.bucket.Turn(w.now)
	if !n.flying {
		d := n.bucket.Due(w.now)
		if d <= w.now {
			n.send()
			return
		}
		due = min(due, d)
	}
	if due == Never || n.planned > w.now && n.planned <= due {
		return
	}
	n.planned = due
	w.after(due-w.now, n.look)
}

func (n *node) send() {
	w := n.w
	n.flying, n.calls = true, n.calls+1
	r := n.bucket.Renew(w.now, n.bucket.Unused())
	r.Travels(w.way + 750)
	r.Key, r.Holder = "bucket", n.name
	r.Spec = lease.Spec{Algorithm: w.limit.Algorithm, Units: w.limit.Rate.Units, Period: w.limit.Rate.Per.Microseconds(), Burst: w.limit.Burst, EpsilonPPM: w.limit.EpsilonPPM}
	if w.limit.Slots > 0 {
		r.Spec.Units = w.limit.Slots
	}
	w.after(w.way+500+w.rng.Int64N(500), func() {
		r.Now = worldEpoch + w.now
		if p := r.Spec.Period; w.limit.Algorithm.Windowed() {
			r.Spec.WindowStart = r.Now - r.Now%p
			r.Spec.WindowEnd, r.Spec.NextWindowEnd = r.Spec.WindowStart+p, r.Spec.WindowStart+2*p
		}
		a := w.store.Renew(context.Background(), []lease.Renewal{r})[0]
		w.after(w.way+500+w.rng.Int64N(500), func() {
			if n.crashed {
				return
			}
			n.flying = false
			if a.Err != nil {
				panic(a.Err)
			}
			n.deliver(n.bucket.Apply(w.now, a.Grant))
			n.look()
		})
	})
}

func (n *node) deliver(ws []*Waiter) {
	for _, w := range ws {
		w.Done(w.Verdict())
	}
}

// ask asks for one unit; then is told whether, at once or after it waited.
func (n *node) ask(patient bool, then func(admitted bool)) { n.request(1, patient, then) }

// askFor asks for several units at once.
func (n *node) askFor(units int64, then func(admitted bool)) { n.request(units, false, then) }

func (n *node) request(units int64, patient bool, then func(admitted bool)) {
	if n.crashed {
		return
	}
	w := n.w
	if n.bucket.Take(units) {
		then(true)
		return
	}
	v := n.bucket.Ask(w.now, units, false, patient)
	if v.Outcome != Wait {
		then(v.Outcome == Admitted)
		n.look()
		return
	}
	waiter := &Waiter{Units: units, Done: func(v Verdict) { then(v.Outcome == Admitted) }}
	if patient || n.bucket.Terms.queues {
		served, ok := n.bucket.Join(waiter)
		n.deliver(served)
		if !ok {
			then(false)
		}
	} else if !n.bucket.Enqueue(waiter) {
		then(false)
	}
	n.look()
}

// The slots of an agent that crashed come back once its record's place in the ring is
// over, and no more than there are run at any time; those of one that runs long
// requests and nothing else stay its own.
func TestSlotsOfACrashedAgentComeBack(t *testing.T) {
	w := newWorld(*slotsLimit(10, 100), 3)
	crashed, steady, busy := w.nodes[0], w.nodes[1], w.nodes[2]
	running := map[*node]int{}
	start := func(n *node, lasts int64) {
		n.ask(true, func(ok bool) {
			if !ok {
				t.Errorf("%s: denied with room in the queue", n.name)
				return
			}
			running[n]++
			if sum := running[crashed] + running[steady] + running[busy]; sum > 10 {
				t.Errorf("at %d ms %d slots are in use, of 10", w.now/1000, sum)
			}
			w.after(lasts, func() {
				if n.crashed {
					return
				}
				running[n]--
				n.deliver(n.bucket.Finish(1))
				n.look()
			})
		})
	}
	for range 3 {
		start(steady, 120_000_000) // two minutes, without a further request
	}
	for range 4 {
		start(crashed, 1<<40)
	}
	w.runTo(3_000_000)
	for range 50 {
		start(busy, 1_000_000)
	}
	w.runTo(6_000_000)
	if running[crashed] != 4 || running[steady] != 3 || running[busy] != 3 {
		t.Fatalf("%d, %d and %d run, want 4, 3 and the 3 that are left", running[crashed], running[steady], running[busy])
	}
	crashed.crashed = true
	at := w.now
	for running[crashed] = 0; running[busy] < 7 && w.now < at+60_000_000; {
		w.runTo(w.now + 100_000)
	}
	if took := w.now - at; running[busy] < 7 || took > 3_000_000 {
		t.Errorf("after %d ms %d run on the busy agent, want 7 within 3 s", took/1000, running[busy])
	}
	w.runTo(100_000_000)
	if running[steady] != 3 || running[busy] != 0 {
		t.Errorf("%d and %d run, want 3 and none", running[steady], running[busy])
	}
	calls := steady.calls
	w.runTo(120_000_000)
	if n := steady.calls - calls; n == 0 || n > 60 {
		t.Errorf("the agent with long requests made %d calls in 20 s, want some, and no more than a term asks for", n)
	}
	for range 10 {
		start(busy, 1_000_000)
	}
	w.runTo(120_500_000)
	if running[busy] != 7 {
		t.Errorf("%d run beside the 3 long ones, want 7", running[busy])
	}
	w.runTo(140_000_000)
}

// When a window turns no request waits for longer than a round trip: the agents have tokens of the next one. In no
// window more is admitted than the limit says.
func TestNobodyWaitsAtAnEdge(t *testing.T) {
	unraced.Only(t)
	for _, c := range []struct {
		name   string
		length time.Duration
		units  int64
		demand int64 // of each of 10 agents, a second
	}{
		{"below the limit", 5 * time.Second, 20_000, 300},
		{"far above the limit", 5 * time.Second, 20_000, 1_000},
		{"windows of a second", time.Second, 10_000, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(limit.Limit{
				Name: "l", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: c.units, Per: c.length}, EpsilonPPM: 50_000,
			}, 10)
			length := c.length.Microseconds()
			const windows = 6
			admitted := make(map[int64]int64)
			var waits []int64 // within 20 ms after an edge, the first left out
			end := w.now + windows*length
			for _, n := range w.nodes {
				var arrive func()
				arrive = func() {
					at := w.now
					n.ask(false, func(ok bool) {
						if ok {
							admitted[(worldEpoch+w.now)/length]++
						}
						if at > 1_000_000+length && (worldEpoch+at)%length < 20_000 {
							waits = append(waits, w.now-at)
						}
					})
					if w.now < end {
						w.after(int64(w.rng.ExpFloat64()*1e6/float64(c.demand)), arrive)
					}
				}
				w.after(w.rng.Int64N(1_000), arrive)
			}
			w.runTo(end + 1_000_000)
			for window, n := range admitted {
				if n > c.units {
					t.Errorf("window %d: %d units, want %d at most", window, n, c.units)
				}
				if least := min(c.units, 10*c.demand*length/1_000_000) * 95 / 100; window > (worldEpoch+1_000_000)/length && window < (worldEpoch+end)/length && n < least {
					t.Errorf("window %d: %d units, want %d at least", window, n, least)
				}
			}
			slices.Sort(waits)
			if len(waits) < 100 {
				t.Fatalf("only %d requests came within 20 ms after an edge", len(waits))
			}
			if p99 := waits[len(waits)*99/100]; p99 > 2_000 {
				t.Errorf("of %d requests at the edges one in a hundred waited %d us or more, want a round trip at most", len(waits), p99)
			}
		})
	}
}

// Requests that wait their turn on several agents leave at the limit's pace together.
func TestLeakyBucketPacesAllAgents(t *testing.T) {
	w := newWorld(limit.Limit{
		Name: "l", Algorithm: limit.LeakyBucket, Rate: limit.Rate{Units: 100, Per: time.Second}, Burst: 1, EpsilonPPM: 50_000, Queue: 1000,
	}, 4)
	var left []int64
	for i := range 800 {
		n := w.nodes[i%4]
		w.after(int64(i)*100, func() {
			n.ask(true, func(ok bool) {
				if !ok {
					t.Error("denied with room in the queue")
				}
				left = append(left, w.now)
			})
		})
	}
	w.runTo(20_000_000)
	if len(left) != 800 {
		t.Fatalf("%d of 800 left", len(left))
	}
	if took := left[799] - left[0]; took < 7_600_000 || took > 9_000_000 {
		t.Errorf("800 at 100 a second took %d ms, want 8 s about", took/1000)
	}
	for i := range left {
		if j := i + 100; j < len(left) && left[j]-left[i] < 900_000 {
			t.Errorf("100 left within %d ms, want a second", (left[j]-left[i])/1000)
			break
		}
	}
	calls := 0
	for _, n := range w.nodes {
		calls += n.calls
	}
	t.Logf("%d calls, %d ms", calls, (left[799]-left[0])/1000)
}

// An agent that is always busy gives its slots up to others that wait, until each has its
// share, also where there are fewer slots than agents; and nearly all slots are in use.
func TestSlotsAreShared(t *testing.T) {
	for _, c := range []struct {
		agents, slots int64
		least         float64 // part of the slots' time that is used
	}{{2, 8, 0.85}, {3, 7, 0.8}, {4, 2, 0.6}} {
		t.Run(fmt.Sprint(c.agents, " agents ", c.slots, " slots"), func(t *testing.T) {
			const work = 100_000
			w := newWorld(*slotsLimit(c.slots, 100), int(c.agents))
			ran := make([]int64, c.agents)
			running := int64(0)
			var again func(i int)
			again = func(i int) {
				n := w.nodes[i]
				n.ask(true, func(ok bool) {
					if !ok {
						t.Error("denied with room in the queue")
						return
					}
					if running++; running > c.slots {
						t.Errorf("%d run, of %d", running, c.slots)
					}
					w.after(work, func() {
						ran[i]++
						running--
						n.deliver(n.bucket.Finish(1))
						again(i)
					})
				})
			}
			for range 20 {
				again(0)
			}
			w.runTo(3_000_000) // the first has all
			for i := range w.nodes[1:] {
				for range 20 {
					again(i + 1)
				}
			}
			w.runTo(8_000_000)
			clear(ran)
			from := w.now
			w.runTo(38_000_000)
			sum := int64(0)
			for _, n := range ran {
				sum += n
			}
			for i, n := range ran {
				if n*c.agents < sum*7/10 || n*c.agents > sum*13/10 {
					t.Errorf("agent %d ran %d of %d, want its part", i, n, sum)
				}
			}
			used := float64(sum*work) / float64((w.now-from)*c.slots)
			t.Logf("%.0f %% of the slots' time was used; %v", used*100, ran)
			if used < c.least {
				t.Errorf("%.0f %% of the slots' time was used, want %.0f %%", used*100, c.least*100)
			}
		})
	}
}

// Agents have little to do for a while, and then all of them have much at once. Requests are decided by the cells, which know no
// time, as far as these go. What trickled before is not spent besides what was there then: no window is above its bound, of a strict limit to the token.
func TestNoWindowIsAboveTheBoundAfterARest(t *testing.T) {
	unraced.Only(t)
	t.Run("strict", func(t *testing.T) { noWindowIsAboveTheBoundAfterARest(t, 20, 0, 0) })
	t.Run("within 5 %", func(t *testing.T) { noWindowIsAboveTheBoundAfterARest(t, 20, 50_000, 0) })
	t.Run("within 5 %, three agents", func(t *testing.T) { noWindowIsAboveTheBoundAfterARest(t, 3, 50_000, 0) })
	t.Run("within 5 %, round trips of 50 ms", func(t *testing.T) { noWindowIsAboveTheBoundAfterARest(t, 20, 50_000, 25_000) })
	t.Run("within 5 %, round trips of 100 ms", func(t *testing.T) { noWindowIsAboveTheBoundAfterARest(t, 20, 50_000, 50_000) })
}

func noWindowIsAboveTheBoundAfterARest(t *testing.T, agents int, epsilonPPM, way int64) {
	most := map[int64]float64{}
	defer func() { t.Log("most of R x W + B, by rate:", most) }()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		rate := []int64{35, 185, 1000}[seed%3]
		w := newWorld(limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: rate, Per: time.Second}, Burst: rate, EpsilonPPM: epsilonPPM}, agents)
		w.way = way
		w.rng = r
		var admitted []int64                        // when
		asks := func(from, to int64, all float64) { // requests a second of all agents
			each := float64(agents) * 1e6 / all
			for _, n := range w.nodes {
				for at := from + int64(r.ExpFloat64()*each); at < to; at += int64(r.ExpFloat64() * each) {
					w.after(at-w.now, func() {
						n.ask(false, func(ok bool) {
							if ok {
								admitted = append(admitted, w.now)
							}
						})
					})
				}
			}
		}
		at := w.now
		for range 6 {
			rest := at + r.Int64N(3_000_000)
			asks(at, rest, float64(rate)/2)
			at = rest + 1_500_000
			asks(rest, at, 3*float64(rate))
		}
		w.runTo(at + 1_000_000)
		peak, first := 0, 0
		for i := range admitted {
			for admitted[first] <= admitted[i]-1_000_000 {
				first++
			}
			peak = max(peak, i-first+1)
		}
		most[rate] = max(most[rate], float64(peak)/float64(2*rate))
		if bound := 2 * rate; int64(peak) > bound+bound*epsilonPPM/limit.Micro {
			t.Errorf("seed %d: %d were admitted in a second, of %d/s and a burst of a second", seed, peak, rate)
		}
	}
}
