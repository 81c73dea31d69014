//go:build interleave

package agent

import (
	"fmt"
	"hash/maphash"
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
