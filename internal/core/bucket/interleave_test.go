//go:build interleave

package bucket

import (
	"iter"
	"maps"
	"math/bits"
	"runtime/debug"
	"testing"
)

// A scene is a few actors on a bucket or two. explore brings it into every state that some order of their operations on
// shared memory leads to, and asks in each of them whether all is as it should be.
//
// What actors note for the checks besides (ghosts) must not depend on the order of independent operations: several actors
// may add to a ghost, or one writes it, and none reads what another writes.
type scene struct {
	actors []func()
	state  func() []int64 // all that is shared, and the ghosts that the checks go by
	always func() string  // a fault in this state, or nothing; it depends on the state alone
	atEnd  func() string
}

// ended unwinds an actor whose run is given up.
type ended struct{}

// An actor is a coroutine, since a switch to one takes a fraction of what two channels and the scheduler do.
type actor struct {
	number  int
	next    func() (struct{}, bool) // lets it go on to its next operation; false once it has none
	stop    func()
	yield   func(struct{}) bool // false gives the run up
	about   access              // its next operation; one that waits for a lock goes on only when that is free
	done    bool
	history uint64 // a hash of all that it saw
	steps   int
}

// An explorer goes depth first through the states. It skips a step in two cases: it has been in the state that the step
// leads to (visited), or it knows so beforehand. It knows when two steps are independent and it has taken them in the
// other order: both orders lead to the same state (sleep sets, as Godefroid has them). No step ever leads back, so
// all that follows a state that was left has been seen. Skipping steps so leaves out no state, only ways to one.
type explorer struct {
	visited map[uint64]bool
	plain   bool // skips only what was visited
	runs    int
	current *actor
	trace   []choice // of the run before, up to a choice that is another now
	at      int      // how many of them are made
	again   int      // of how many what follows was seen before
}

// mix adds v to the hash h: other values, or another order of them, give another hash.
func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// A choice is who goes on. Sets of actors have a bit each.
type choice struct {
	taken   int
	instead uint // may go on instead, as yet untried
	tried   uint // went on instead: all that follows was seen
	asleep  uint // need not go on: all that follows was seen in another order
}

// blocked reports whether the actor waits for a lock that another has.
func (a *actor) blocked() bool { return a.about.lock != nil && a.about.lock.held }

// independent reports whether two operations have the same effect in either order: they touch different things, or only read.
func independent(a, b access) bool {
	if a.lock != nil || b.lock != nil {
		return a.lock != b.lock
	}
	return a.at != b.at || !a.write && !b.write
}

// holds fails unless every state of a scene is without a fault, and there are enough of them to tell.
func holds(t *testing.T, name string, make func() scene) {
	t.Helper()
	fault, states := explore(t, make)
	t.Logf("%s: %d states", name, states)
	if fault != "" {
		t.Errorf("%s: %s", name, fault)
	}
	if states < 200 {
		t.Errorf("%s: only %d states: the scene has lost its point", name, states)
	}
}

// explore returns the first fault, or nothing, and how many states it has been in.
func explore(t *testing.T, make func() scene) (fault string, states int) {
	t.Helper()
	x := &explorer{visited: map[uint64]bool{}}
	return x.explore(t, make), len(x.visited)
}

// explore returns the first fault, or nothing.
func (x *explorer) explore(t *testing.T, make func() scene) (fault string) {
	t.Helper()
	// What is alive is little, and each run leaves a scene behind.
	defer debug.SetGCPercent(debug.SetGCPercent(2000))
	step = x.step
	saw = x.saw
	defer func() { step, saw = func(access) {}, func(int64) {} }()
	for {
		x.runs++
		if x.runs > 2_000_000 {
			t.Fatal("too many orders: make the scene smaller")
		}
		if fault := x.run(make); fault != "" {
			return fault
		}
		for len(x.trace) > 0 && x.trace[len(x.trace)-1].instead == 0 {
			x.trace = x.trace[:len(x.trace)-1]
		}
		if len(x.trace) == 0 {
			return ""
		}
		last := &x.trace[len(x.trace)-1]
		last.tried |= 1 << last.taken
		last.taken = bits.TrailingZeros(last.instead)
		last.instead &= last.instead - 1
	}
}

func (x *explorer) step(about access) {
	a := x.current
	if a == nil {
		return // preparing, checking, or giving up
	}
	a.steps++
	if x.at < x.again && x.trace[x.at].taken == a.number {
		x.at++ // it is known to be the next, and that what it wants is free: no need to leave it
		return
	}
	a.about = about
	if !a.yield(struct{}{}) {
		panic(ended{})
	}
	a.about = access{}
}

func (x *explorer) saw(v int64) {
	if a := x.current; a != nil {
		a.history = mix(a.history, uint64(v))
	}
}

// run makes the choices of the trace and then always the first, until the end or until all is as it
// was before in another order.
func (x *explorer) run(make func() scene) (fault string) {
	x.current, x.at, x.again = nil, 0, 0
	s := make()
	var actors []*actor
	for i, f := range s.actors {
		a := &actor{number: i}
		a.next, a.stop = iter.Pull(func(yield func(struct{}) bool) {
			a.yield = yield
			defer func() {
				if e := recover(); e != nil && e != any(ended{}) {
					panic(e)
				}
			}()
			f()
		})
		actors = append(actors, a)
	}
	move := func(a *actor) {
		x.current = a
		_, more := a.next()
		x.current = nil
		a.done = !more
	}
	defer func() {
		for _, a := range actors {
			a.stop()
		}
	}()
	for _, a := range actors {
		move(a) // to its first operation
	}
	for x.again = max(len(x.trace)-1, 0); x.at < x.again; {
		a := actors[x.trace[x.at].taken]
		x.at++
		move(a)
	}
	asleep := uint(0)
	for {
		if x.at == len(x.trace) {
			ready, unfinished := uint(0), false
			for i, a := range actors {
				unfinished = unfinished || !a.done
				if !a.done && !a.blocked() {
					ready |= 1 << i
				}
			}
			if !unfinished {
				return s.atEnd()
			}
			if ready == 0 {
				return "everyone waits for a lock"
			}
			if ready &^= asleep; ready == 0 {
				return "" // what would follow was seen in another order
			}
			x.trace = append(x.trace, choice{taken: bits.TrailingZeros(ready), instead: ready & (ready - 1), asleep: asleep})
		}
		c := x.trace[x.at]
		a := actors[c.taken]
		asleep = c.asleep | c.tried
		for i, other := range actors {
			if x.plain || !independent(a.about, other.about) {
				asleep &^= 1 << i
			}
		}
		x.at++
		move(a)
		if fault := s.always(); fault != "" {
			return fault
		}
		h := uint64(0)
		for _, v := range s.state() {
			h = mix(h, uint64(v))
		}
		for _, a := range actors {
			h = mix(h, a.history)
			h = mix(h, uint64(a.steps)<<2|bit(a.done)<<1|bit(a.blocked()))
		}
		if x.visited[h] {
			return ""
		}
		x.visited[h] = true
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// Skipping steps whose outcome is known leaves out no state.
func TestInterleavingsAreAllSeen(t *testing.T) {
	both(t, func(t *testing.T, p parts) {
		for name, make := range scenesOfCells(p) {
			var seen [2]explorer
			for i := range seen {
				seen[i] = explorer{visited: map[uint64]bool{}, plain: i == 0}
				if fault := seen[i].explore(t, make); fault != "" {
					t.Fatalf("%s: %s", name, fault)
				}
			}
			t.Logf("%s: %d states in %d runs, in %d without", name, len(seen[1].visited), seen[1].runs, seen[0].runs)
			if !maps.Equal(seen[0].visited, seen[1].visited) {
				t.Errorf("%s: %d states, of %d", name, len(seen[1].visited), len(seen[0].visited))
			}
		}
	})
}
