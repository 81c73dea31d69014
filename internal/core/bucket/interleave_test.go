//go:build interleave

package bucket

import (
	"iter"
	"math/bits"
	"runtime/debug"
	"testing"
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

// An actor is a coroutine, since a switch to one takes a fraction of what two channels and the scheduler do.
type actor struct {
	number  int
	next    func() (struct{}, bool) // lets it go on to its next operation; false once it has none
	stop    func()
	yield   func(struct{}) bool // false gives the run up
	wants   *lock               // goes on only when it is free
	done    bool
	history uint64 // a hash of all that it saw
	steps   int
}

type explorer struct {
	visited map[uint64]bool
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

// A choice is who goes on, and who may instead, as yet untried: a bit each.
type choice struct {
	taken   int
	instead uint
}

// holds fails unless every order of a scene is without a fault, and there are enough of them to tell.
func holds(t *testing.T, name string, make func() scene) {
	t.Helper()
	fault, runs := explore(t, make)
	t.Logf("%s: %d orders", name, runs)
	if fault != "" {
		t.Errorf("%s: %s", name, fault)
	}
	if runs < 20 {
		t.Errorf("%s: only %d orders: the scene has lost its point", name, runs)
	}
}

// explore returns the first fault, or nothing, and how many runs it took.
func explore(t *testing.T, make func() scene) (fault string, runs int) {
	t.Helper()
	// What is alive is little, and each run leaves a scene behind.
	defer debug.SetGCPercent(debug.SetGCPercent(2000))
	x := &explorer{visited: map[uint64]bool{}}
	step = x.step
	saw = x.saw
	defer func() { step, saw = func(*lock) {}, func(int64) {} }()
	for {
		x.runs++
		if x.runs > 2_000_000 {
			t.Fatal("too many orders: make the scene smaller")
		}
		if fault := x.run(make); fault != "" {
			return fault, x.runs
		}
		for len(x.trace) > 0 && x.trace[len(x.trace)-1].instead == 0 {
			x.trace = x.trace[:len(x.trace)-1]
		}
		if len(x.trace) == 0 {
			return "", x.runs
		}
		last := &x.trace[len(x.trace)-1]
		last.taken = bits.TrailingZeros(last.instead)
		last.instead &= last.instead - 1
	}
}

func (x *explorer) step(l *lock) {
	a := x.current
	if a == nil {
		return // preparing, checking, or giving up
	}
	a.steps++
	if x.at < x.again && x.trace[x.at].taken == a.number {
		x.at++ // it is known to be the next, and that what it wants is free: no need to leave it
		return
	}
	a.wants = l
	if !a.yield(struct{}{}) {
		panic(ended{})
	}
	a.wants = nil
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
	for {
		if x.at == len(x.trace) {
			ready, unfinished := uint(0), false
			for i, a := range actors {
				unfinished = unfinished || !a.done
				if !a.done && (a.wants == nil || !a.wants.held) {
					ready |= 1 << i
				}
			}
			if !unfinished {
				return s.atEnd()
			}
			if ready == 0 {
				return "everyone waits for a lock"
			}
			x.trace = append(x.trace, choice{bits.TrailingZeros(ready), ready & (ready - 1)})
		}
		a := actors[x.trace[x.at].taken]
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
			h = mix(h, uint64(a.steps)<<2|bit(a.done)<<1|bit(a.wants != nil && a.wants.held))
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
