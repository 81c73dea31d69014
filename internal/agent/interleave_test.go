//go:build interleave

package agent

import (
	"fmt"
	"hash/maphash"
	"testing"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/limit"
)

// A scene is a few actors on a bucket or two. explore runs every order of their operations on
// what they share, as far as orders differ in what anyone sees, and asks after each
// operation and at the end whether all is as it should be.
type scene struct {
	actors []func()
	state  func() []int64 // all that is shared, and the ghosts that the checks go by
	always func() string  // a fault, or nothing
	atEnd  func() string
}

// ended unwinds an actor whose run is given up.
type ended struct{}

type actor struct {
	resume  chan bool // false gives the run up
	wants   *lock     // goes on only when it is free
	done    bool
	history maphash.Hash // of all that it saw
	steps   int
}

type explorer struct {
	seed    maphash.Seed
	visited map[uint64]bool
	runs    int
	current *actor
	paused  chan struct{}
}

type choice struct{ taken, of int }

// explore returns the first fault, or nothing, and how many runs it took.
func explore(t *testing.T, make func() scene) (fault string, runs int) {
	t.Helper()
	x := &explorer{seed: maphash.MakeSeed(), visited: map[uint64]bool{}, paused: newPaused()}
	step = x.step
	saw = x.saw
	defer func() { step, saw = func(*lock) {}, func(int64) {} }()
	var prefix []int
	for {
		x.runs++
		if x.runs > 2_000_000 {
			t.Fatal("too many orders: make the scene smaller")
		}
		trace, fault := x.run(make, prefix)
		if fault != "" {
			return fault, x.runs
		}
		for len(trace) > 0 && trace[len(trace)-1].taken+1 >= trace[len(trace)-1].of {
			trace = trace[:len(trace)-1]
		}
		if len(trace) == 0 {
			return "", x.runs
		}
		prefix = prefix[:0]
		for _, c := range trace {
			prefix = append(prefix, c.taken)
		}
		prefix[len(prefix)-1]++
	}
}

func newPaused() chan struct{} { return make(chan struct{}) }

func (x *explorer) step(l *lock) {
	a := x.current
	if a == nil {
		return // preparing, or checking
	}
	a.wants = l
	x.paused <- struct{}{}
	if !<-a.resume {
		panic(ended{})
	}
	a.wants = nil
	a.steps++
}

func (x *explorer) saw(v int64) {
	if x.current != nil {
		fmt.Fprintf(&x.current.history, "%d,", v)
	}
}

// run makes the choices of prefix and then always the first, until the end or until all is as it
// was before in another order.
func (x *explorer) run(make func() scene, prefix []int) (trace []choice, fault string) {
	x.current = nil
	s := make()
	var actors []*actor
	for _, f := range s.actors {
		a := &actor{resume: newResume()}
		a.history.SetSeed(x.seed)
		actors = append(actors, a)
		go func() {
			defer func() {
				if e := recover(); e != nil {
					if _, ok := e.(ended); !ok {
						panic(e)
					}
				}
				a.done = true
				x.paused <- struct{}{}
			}()
			if <-a.resume {
				f()
			}
		}()
	}
	move := func(a *actor, on bool) {
		x.current = a
		a.resume <- on
		<-x.paused
		x.current = nil
	}
	defer func() {
		for _, a := range actors {
			if !a.done {
				move(a, false)
			}
		}
	}()
	for _, a := range actors {
		move(a, true) // to its first operation
	}
	for {
		var ready []*actor
		unfinished := false
		for _, a := range actors {
			unfinished = unfinished || !a.done
			if !a.done && (a.wants == nil || !a.wants.held) {
				ready = append(ready, a)
			}
		}
		if !unfinished {
			return trace, s.atEnd()
		}
		if len(ready) == 0 {
			return trace, "everyone waits for a lock"
		}
		k := 0
		if len(trace) < len(prefix) {
			k = prefix[len(trace)]
		}
		trace = append(trace, choice{k, len(ready)})
		move(ready[k], true)
		if fault := s.always(); fault != "" {
			return trace, fault
		}
		if len(trace) < len(prefix) {
			continue
		}
		var h maphash.Hash
		h.SetSeed(x.seed)
		fmt.Fprint(&h, s.state())
		for _, a := range actors {
			fmt.Fprint(&h, a.done, a.steps, a.history.Sum64(), a.wants != nil && a.wants.held)
		}
		if x.visited[h.Sum64()] {
			return trace, ""
		}
		x.visited[h.Sum64()] = true
	}
}

func newResume() chan bool { return make(chan bool) }

// parts is the operations whose order the counts rest on; a control puts a wrong one in.
type parts struct {
	admitted func(*stock) int64
	credit   func(*stock, int64) int64
	putBack  func(c *stock, n int64)
	take     func(*stock, int64) bool
}

var right = parts{
	admitted: func(c *stock) int64 { return c.admitted() },
	credit:   (*stock).credit,
	take:     func(c *stock, n int64) bool { return c.take(n) },
	// As a request of several limits does: announced before, taken back after.
	putBack: func(c *stock, n int64) {
		c.back.Add(n)
		c.pending.Add(-n)
	},
}

// ghost is what truly happened in a cell, as far as its actors know.
type ghost struct {
	c         stock
	flying    int64 // units of requests under way
	granted   int64 // credited by the owner in all, less what it took out
	atMost    int64 // units that are admitted, or may be by a request under way
	admitted  int64 // units that requests were told they have, for good
	inHand    int64 // of these, those not given back
	refused   int64
	collected int64 // what the owner has told the ledger of
	fault     string
}

func (g *ghost) state() []int64 {
	c := &g.c
	return []int64{
		c.tokens.v, c.refused.v, c.back.v, c.pending.v, c.put[0].v, c.put[1].v, c.finished.v, c.folded.v,
		g.flying, g.granted, g.atMost, g.admitted, g.inHand, g.refused, g.collected,
	}
}

func (g *ghost) always() string {
	if g.fault == "" && g.inHand > g.granted {
		return fmt.Sprintf("requests have %d units in hand, %d were granted", g.inHand, g.granted)
	}
	if g.fault != "" {
		return g.fault
	}
	return crashed(&g.c, g.admitted, g.flying)
}

func (g *ghost) atEnd() string {
	c := &g.c
	left := c.fold()
	switch {
	case c.admitted() != g.admitted:
		return fmt.Sprintf("%d units count as admitted, %d were", c.admitted(), g.admitted)
	case c.denied() != g.refused:
		return fmt.Sprintf("%d units count as denied, %d were", c.denied(), g.refused)
	case left+g.inHand != g.granted:
		return fmt.Sprintf("%d units are left and %d in hand, of %d granted", left, g.inHand, g.granted)
	case c.due() != 0 || c.pending.v != 0 || left < 0:
		return fmt.Sprintf("%d left, %d back, %d pending at the end", left, c.due(), c.pending.v)
	}
	return ""
}

// crashed is asked after every operation of every order: a process that is killed there leaves
// all that was admitted, and no more than requests under way have besides.
func crashed(c *stock, admitted, flying int64) string {
	if got := c.taken(); got < admitted || got > admitted+flying {
		return fmt.Sprintf("a crash leaves %d units as admitted: %d were, and %d are under way", got, admitted, flying)
	}
	return ""
}

// request takes n units; with finish it gives them back at its end.
func (g *ghost) request(p parts, n int64, finish bool) func() {
	return func() {
		g.atMost += n
		g.flying += n
		if !p.take(&g.c, n) {
			g.atMost -= n
			g.refused += n
			g.flying -= n
			g.c.refused.Add(n) // as Slow does
			return
		}
		g.flying -= n
		g.admitted += n
		g.inHand += n
		if finish {
			g.inHand -= n
			g.c.finish(n)
		}
	}
}

// denied takes n units, which another limit then denies.
func (g *ghost) denied(p parts, n int64) func() {
	return func() {
		g.flying += n
		defer func() { g.flying -= n }()
		g.c.pending.Add(n)
		if p.take(&g.c, n) {
			p.putBack(&g.c, n)
			return
		}
		g.refused += n
		g.c.refused.Add(n)
		g.c.pending.Add(-n)
	}
}

func (g *ghost) credit(p parts, n int64) func() {
	return func() {
		g.granted += max(n, 0) // before anyone can have them
		short := p.credit(&g.c, n)
		g.granted += min(n, 0) + short
	}
}

// collect tells the ledger what was admitted, as Bucket.Collect does.
func (g *ghost) collect(p parts) func() {
	return func() {
		a := p.admitted(&g.c)
		if a > g.atMost && g.fault == "" {
			g.fault = fmt.Sprintf("%d units are told to the ledger, %d at most are admitted", a, g.atMost)
		}
		g.collected = max(g.collected, a)
	}
}

func then(fs ...func()) func() {
	return func() {
		for _, f := range fs {
			f()
		}
	}
}

func newGhost(tokens int64) *ghost {
	g := &ghost{granted: tokens, c: stock{cell: new(cell)}}
	g.c.credit(tokens)
	return g
}

func (g *ghost) scene(actors ...func()) scene {
	return scene{actors: actors, state: g.state, always: g.always, atEnd: g.atEnd}
}

// scenesOfCells are every pair and some threes of what may happen to a cell at once, the
// owner's operations one after the other as under its mutex.
func scenesOfCells(p parts) map[string]func() scene {
	fold := func(g *ghost) func() { return g.credit(p, 0) }
	return map[string]func() scene{
		"take, take, refill": func() scene {
			g := newGhost(1)
			return g.scene(g.request(p, 1, false), g.request(p, 1, false), then(g.credit(p, 1), g.collect(p)))
		},
		"several units and one": func() scene {
			g := newGhost(2)
			return g.scene(g.request(p, 2, false), g.request(p, 1, false), then(g.credit(p, -1), g.collect(p)))
		},
		"put back while the owner counts": func() scene {
			g := newGhost(1)
			return g.scene(g.denied(p, 1), g.request(p, 1, false), then(g.collect(p), fold(g), g.collect(p)))
		},
		"several put back while units are taken out": func() scene {
			g := newGhost(3)
			return g.scene(g.denied(p, 2), g.request(p, 1, false), then(g.credit(p, -3), g.collect(p), fold(g)))
		},
		"slots come back while the owner counts": func() scene {
			g := newGhost(1)
			return g.scene(g.request(p, 1, true), g.request(p, 1, true), then(g.collect(p), fold(g), g.collect(p)))
		},
		"slots come back and are put back": func() scene {
			g := newGhost(2)
			return g.scene(g.request(p, 2, true), g.denied(p, 1), then(fold(g), g.collect(p)))
		},
		"slots come back to the first in line": func() scene {
			g := newGhost(1)
			return g.scene(then(g.request(p, 1, true)), g.request(p, 1, true), func() {
				for range 3 {
					g.atMost++
					g.flying++
					got := g.c.claim(1)
					g.flying--
					if got == 1 {
						g.admitted++
						g.inHand++
						return
					}
					g.atMost--
				}
			})
		},
		"slots that come back are nobody's": func() scene {
			g := newGhost(1)
			return g.scene(g.request(p, 1, true), g.denied(p, 1), func() {
				n := g.c.forfeit(5)
				g.granted -= n
				g.collect(p)()
			})
		},
		"the lease ends": func() scene {
			g := newGhost(2)
			return g.scene(then(g.request(p, 1, false), g.request(p, 1, false)), g.request(p, 1, false), then(g.credit(p, -1<<30), g.collect(p)))
		},
	}
}

// twoWords is a credit of units that writes what is there and what counts as put in one after the
// other: right once both are written, and not between.
func twoWords(write func(c *stock, there, counts func() bool) bool) func(*stock, int64) int64 {
	return func(c *stock, n int64) int64 {
		for {
			v, due := c.tokens.Load(), c.due()
			have := max(v>>1, 0)
			next := max(have+due+n, 0)
			was := c.put[v&1].Load()
			if !write(c,
				func() bool { return c.tokens.CompareAndSwap(v, next<<1|v&1) },
				func() bool { c.put[v&1].Store(was + next - have); return true }) {
				c.put[v&1].Store(was)
				continue
			}
			c.folded.Add(due)
			return next - have - due - n
		}
	}
}

// Every order of what may happen to a cell at once keeps its counts, and so does a crash between any
// two operations.
func TestInterleavingsOfACell(t *testing.T) {
	for name, make := range scenesOfCells(right) {
		fault, runs := explore(t, make)
		t.Logf("%s: %d orders", name, runs)
		if fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
		if runs < 20 {
			t.Errorf("%s: only %d orders: the scene has lost its point", name, runs)
		}
	}
}

// With a guard removed some order breaks the counts, and it is found.
func TestInterleavingsFindWhatIsWrong(t *testing.T) {
	for name, change := range map[string]func(*parts){
		"what is back is read before what is there": func(p *parts) {
			p.admitted = func(c *stock) int64 {
				back, pending := c.back.Load(), c.pending.Load()
				return c.taken() + c.back.Load() - pending - back
			}
		},
		"announced no more before it is back": func(p *parts) {
			p.putBack = func(c *stock, n int64) { c.pending.Add(-n); c.back.Add(n) }
		},
		"put in without a look at who takes": func(p *parts) {
			p.credit = func(c *stock, n int64) int64 {
				v, due := c.tokens.Load(), c.due()
				have := max(v>>1, 0)
				next := max(have+due+n, 0)
				c.put[1-v&1].Store(c.put[v&1].Load() + next - have)
				c.tokens.Store(next<<1 | (1 - v&1))
				c.folded.Add(due)
				return next - have - due - n
			}
		},
		"there before it counts as put in": func(p *parts) {
			p.credit = twoWords(func(c *stock, there, counts func() bool) bool {
				ok := there()
				counts()
				return ok
			})
		},
		"counts as put in before it is there": func(p *parts) {
			p.credit = twoWords(func(c *stock, there, counts func() bool) bool {
				counts()
				return there()
			})
		},
		"several units are taken without a look back": func(p *parts) {
			p.take = func(c *stock, n int64) bool {
				if c.units() < n {
					return n == 1 && c.take(1)
				}
				c.tokens.Add(-n * Unit)
				return true
			}
		},
	} {
		p := right
		change(&p)
		found := ""
		for scene, make := range scenesOfCells(p) {
			if fault, _ := explore(t, make); fault != "" {
				found = scene + ": " + fault
				break
			}
		}
		t.Logf("%s: %s", name, found)
		if found == "" {
			t.Errorf("%s: no order of any scene shows it", name)
		}
	}
}

// A request of two limits has units of both or of none, in every order with another such
// request, whatever the other limit's bucket holds.
func TestInterleavingsOfTwoLimits(t *testing.T) {
	for _, stocks := range [][2]int64{{1, 1}, {2, 1}, {1, 2}} {
		for _, crossed := range []bool{false, true} {
			fault, runs := explore(t, func() scene {
				a, b := newGhost(stocks[0]), newGhost(stocks[1])
				both := 0
				request := func(first, second *ghost) func() {
					return func() {
						first.flying++
						second.flying++
						defer func() { first.flying--; second.flying-- }()
						first.c.pending.Add(1)
						first.atMost++
						if !first.c.take(1) {
							first.atMost--
							first.refused++
							first.c.refused.Add(1)
							first.c.pending.Add(-1)
							return
						}
						second.atMost++
						if !second.c.take(1) {
							second.atMost--
							second.refused++
							second.c.refused.Add(1)
							first.c.back.Add(1)
							first.atMost--
							first.c.pending.Add(-1)
							return
						}
						for _, g := range []*ghost{first, second} {
							g.admitted++
							g.inHand++
						}
						both++
						first.c.pending.Add(-1)
					}
				}
				second := request(a, b)
				if crossed {
					second = request(b, a)
				}
				return scene{
					actors: []func(){request(a, b), second, then(a.collect(right), func() { a.c.fold() }, b.collect(right))},
					state:  func() []int64 { return append(a.state(), b.state()...) },
					always: func() string { return a.always() + b.always() },
					atEnd: func() string {
						if int64(both) > min(stocks[0], stocks[1]) || a.admitted != b.admitted {
							return fmt.Sprintf("%d requests have both, of %v", both, stocks)
						}
						return a.atEnd() + b.atEnd()
					},
				}
			})
			t.Logf("stocks %v, crossed %v: %d orders", stocks, crossed, runs)
			if fault != "" {
				t.Errorf("stocks %v, crossed %v: %s", stocks, crossed, fault)
			}
		}
	}
}

// What an ancestor's bucket bills after a crash is all that was admitted for itself, and of requests
// under way no more than they take: what is billed below is not billed here as well.
func TestInterleavingsOfAnAncestor(t *testing.T) {
	for _, hurried := range []bool{false, true} {
		fault, runs := explore(t, func() scene {
			g := newGhost(3)
			own := int64(0)
			below := func(n int64, denied bool) func() {
				return func() {
					g.flying += n
					if hurried {
						g.c.inherited.Add(n)
						g.c.pending.Add(n)
					} else {
						g.c.pending.Add(n)
						g.c.inherited.Add(n)
					}
					if taken := g.c.take(n); denied || !taken {
						if taken {
							g.c.back.Add(n)
						}
						g.c.inherited.Add(-n)
					}
					g.c.pending.Add(-n)
					g.flying -= n
				}
			}
			return scene{
				actors: []func(){below(1, false), below(1, true), func() {
					g.flying++
					if g.c.take(1) {
						own++
					}
					g.flying--
					g.c.fold()
				}},
				state: func() []int64 { return append(g.state(), g.c.inherited.v, own) },
				always: func() string {
					if got := g.c.takenOwn(); got < own || got > own+g.flying {
						return fmt.Sprintf("a crash leaves %d units to bill here: %d were admitted, and %d are under way", got, own, g.flying)
					}
					return ""
				},
				atEnd: func() string { return "" },
			}
		})
		t.Logf("inherited before it is announced %v: %d orders, %s", hurried, runs, fault)
		if (fault != "") != hurried {
			t.Errorf("inherited before it is announced %v: fault %q", hurried, fault)
		}
	}
}

// bucketScene is a scene on a whole bucket of slots: whoever was told that it has a slot has
// it, nobody waits while one is there, and all counts agree.
type bucketScene struct {
	b               *Bucket
	join            func(*Bucket, *Waiter) ([]*Waiter, bool)
	granted         int64
	running, starts int64
	waiting         []*Waiter
	left            int64 // waiters that were abandoned
}

const sceneTime = 1_000_000

func newBucketScene(slots int64) *bucketScene {
	s := &bucketScene{join: (*Bucket).Join, b: NewBucket(&limit.Limit{Algorithm: limit.Concurrency, Slots: 9, Queue: 9}), granted: slots}
	r := s.b.Renew(sceneTime, false)
	s.b.Apply(sceneTime, lease.Grant{Number: r.Number, Tokens: slots, TTL: 10_000_000, DenyFor: 5_000_000})
	return s
}

func (s *bucketScene) started(n int64) { s.running += n; s.starts += n }

func (s *bucketScene) served(ws []*Waiter) {
	for _, w := range ws {
		if w.verdict.Outcome == Admitted {
			s.started(w.Units)
		}
	}
}

// request takes a slot, or waits its turn; when it has it at once it gives it back again.
func (s *bucketScene) request() {
	if !s.b.Take(1) {
		v := s.b.Slow(sceneTime, 1, false)
		if v.Outcome == Wait {
			w := &Waiter{Units: 1}
			s.waiting = append(s.waiting, w)
			served, _ := s.join(s.b, w)
			s.served(served)
			return
		}
		if v.Outcome != Admitted {
			return
		}
	}
	s.started(1)
	s.finish()
}

func (s *bucketScene) finish() {
	s.running--
	s.served(s.b.Finish(1))
}

func (s *bucketScene) scene(actors ...func()) scene {
	return scene{
		actors: actors,
		state: func() []int64 {
			c, b := s.b.cell, s.b
			out := []int64{
				c.tokens.v, c.refused.v, c.back.v, c.pending.v, c.put[0].v, c.put[1].v, c.finished.v, c.folded.v, int64(b.patient.v), b.debt, b.offered,
				s.granted, s.running, s.starts, s.left,
			}
			if b.live {
				out = append(out, 1)
			}
			for _, w := range s.waiting {
				out = append(out, int64(w.verdict.Outcome))
			}
			return out
		},
		always: func() string {
			if s.running > s.granted {
				return fmt.Sprintf("%d slots are in use, of %d", s.running, s.granted)
			}
			return crashed(&s.b.cell, s.starts, int64(len(actors)+len(s.waiting)))
		},
		atEnd: func() string {
			waits := int64(0)
			for _, w := range s.waiting {
				if w.verdict.Outcome == 0 {
					waits++
				}
			}
			waits -= s.left
			admitted, _ := s.b.Collect()
			st := s.b.State(sceneTime)
			switch {
			case waits > 0 && st.Tokens+s.b.offered > s.b.offered:
				return fmt.Sprintf("%d wait, and %d slots are there", waits, st.Tokens)
			case admitted != s.starts:
				return fmt.Sprintf("%d starts are counted, %d were", admitted, s.starts)
			case st.InUse != s.running:
				return fmt.Sprintf("%d slots count as in use, %d are", st.InUse, s.running)
			}
			return ""
		},
	}
}

// A slot that comes back finds who waits for it, in every order; a lease that is renewed,
// answered or over meanwhile loses and doubles none.
func TestInterleavingsOfSlots(t *testing.T) {
	for name, make := range map[string]func() scene{
		"one comes back as another begins to wait": func() scene {
			s := newBucketScene(1)
			s.b.Take(1)
			s.started(1)
			return s.scene(s.finish, s.request)
		},
		"two begin to wait": func() scene {
			s := newBucketScene(1)
			s.b.Take(1)
			s.started(1)
			return s.scene(s.finish, s.request, s.request)
		},
		"one gives up waiting": func() scene {
			s := newBucketScene(1)
			s.b.Take(1)
			s.started(1)
			w := &Waiter{Units: 1}
			s.waiting = append(s.waiting, w)
			s.b.Join(w)
			return s.scene(s.finish, s.request, func() {
				served, was := s.b.Abandon(w, true)
				s.served(served)
				if was {
					s.left++
				}
			})
		},
		"a renewal and its answer": func() scene {
			s := newBucketScene(2)
			take := func() {
				if s.b.Take(1) {
					s.started(1)
				}
			}
			return s.scene(s.request, then(take, take), func() {
				r := s.b.Renew(sceneTime+1, false)
				// The server gives what was offered to others.
				s.granted = r.InUse
				s.served(s.b.Apply(sceneTime+2, lease.Grant{Number: r.Number, TTL: 10_000_000, DenyFor: 5_000_000}))
			})
		},
		"the lease ends": func() scene {
			s := newBucketScene(1)
			s.b.Take(1)
			s.started(1)
			return s.scene(s.finish, s.request, func() { s.b.Expire(sceneTime+20_000_000, false) })
		},
	} {
		fault, runs := explore(t, make)
		t.Logf("%s: %d orders", name, runs)
		if fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

// One that looks for a slot before it can be seen to wait is overlooked.
func TestInterleavingsFindWhoIsOverlooked(t *testing.T) {
	fault, _ := explore(t, func() scene {
		s := newBucketScene(1)
		s.join = func(b *Bucket, w *Waiter) ([]*Waiter, bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			w.patient = true
			b.enqueueLocked(w, int64(b.most))
			served := b.serveLocked(Never)
			b.patient.Add(1)
			return served, true
		}
		s.b.Take(1)
		s.started(1)
		return s.scene(s.finish, s.request)
	})
	t.Log(fault)
	if fault == "" {
		t.Error("no order shows it")
	}
}

// While a lease of tokens is renewed, or given back, requests take of it: what they took is
// spent once, and what was given back is nobody's here.
func TestInterleavingsOfALease(t *testing.T) {
	for _, final := range []bool{false, true} {
		fault, runs := explore(t, func() scene {
			const stock = 3
			b := NewBucket(&limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1}, Burst: 9})
			b.Apply(sceneTime, lease.Grant{Number: b.Renew(sceneTime, false).Number, Tokens: stock, TTL: 10_000_000})
			var taken, refused, left, flying int64
			var r lease.Renewal
			request := func(n int64) func() {
				return func() {
					flying += n
					defer func() { flying -= n }()
					if b.Take(n) {
						taken += n
						return
					}
					switch v := b.Slow(sceneTime, n, false); v.Outcome {
					case Admitted:
						taken += n
					case Denied:
						refused += n
					default:
						left += n // it would wait
					}
				}
			}
			return scene{
				actors: []func(){request(1), then(request(2), request(1)), func() {
					r = b.Renew(sceneTime, final)
					b.Apply(sceneTime, lease.Grant{Number: r.Number, Tokens: 1, TTL: 10_000_000})
				}},
				state: func() []int64 {
					c := b.cell
					return []int64{
						c.tokens.v, c.refused.v, c.back.v, c.put[0].v, c.put[1].v, b.debt, taken, refused, left, r.Held, r.Admitted,
					}
				},
				always: func() string { return crashed(&b.cell, taken, flying) },
				atEnd: func() string {
					admitted, denied := b.Collect()
					have, since := b.State(sceneTime).Tokens-b.debt, taken-(stock-r.Held)
					switch {
					case admitted != taken || denied != refused:
						return fmt.Sprintf("%d admitted and %d denied are counted, %d and %d were", admitted, denied, taken, refused)
					case final && (since != 0 || have != 0):
						return fmt.Sprintf("%d were given back and %d taken, of %d; %d are left", r.Held, taken, stock, have)
					case !final && have != 1-since:
						return fmt.Sprintf("1 was granted, %d taken since: %d are left", since, have)
					}
					return ""
				},
			}
		})
		t.Logf("final %v: %d orders", final, runs)
		if fault != "" {
			t.Errorf("final %v: %s", final, fault)
		}
	}
}
