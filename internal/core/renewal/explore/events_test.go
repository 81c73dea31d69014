package explore

import "fmt"

// event is something that may happen.
type event struct {
	name  string
	agent int                 // whose; -1 for nobody's
	can   func(w *world) bool // nil for always
	do    func(w *world)
}

// ask is n requests of one unit at an agent, all at once; then its messages have time to go and come back.
func ask(i int, n int64) event {
	return event{fmt.Sprintf("ask %d for %d", i, n), i, nil, func(w *world) {
		w.agents[i].ask(n, 1)
		w.run(w.now + 3*oneWay)
	}}
}

// large is one request of n units.
func large(i int, n int64) event {
	return event{fmt.Sprintf("ask %d for one of %d", i, n), i, nil, func(w *world) {
		w.agents[i].ask(1, n)
		w.run(w.now + 3*oneWay)
	}}
}

// end ends a request that has a slot.
func end(i int) event {
	return event{fmt.Sprintf("a request ends at %d", i), i, func(w *world) bool { return w.agents[i].slots > 0 }, func(w *world) {
		w.agents[i].finish()
		w.run(w.now + 3*oneWay)
	}}
}

// endAll ends all of them.
func endAll(i int) event {
	return event{fmt.Sprintf("all requests end at %d", i), i, func(w *world) bool { return w.agents[i].slots > 0 }, func(w *world) {
		for w.agents[i].slots > 0 {
			w.agents[i].finish()
		}
		w.run(w.now + 3*oneWay)
	}}
}

// sets has the network treat an agent's calls so from now on. The server goes on with what it held.
func sets(i int, to link, name string) event {
	return event{fmt.Sprintf("%s %d", name, i), i, func(w *world) bool { return w.agents[i].link != to }, func(w *world) {
		g := w.agents[i]
		was := g.link
		g.link = to
		w.tell("the link of agent %d: %s", i, name)
		if was == held {
			for _, c := range append([]*call(nil), g.calls...) {
				g.arrives(c)
			}
			w.run(w.now + 3*oneWay)
		}
	}}
}

func hang(i int) event   { return sets(i, held, "hang") }
func mend(i int) event   { return sets(i, fine, "mend") }
func sever(i int) event  { return sets(i, cut, "cut") }
func deafen(i int) event { return sets(i, deaf, "lose answers of") }

// fated says what becomes of the agent's next call.
func fated(f fate) func(int) event {
	return func(i int) event {
		return event{fmt.Sprintf("the next call of %d %s", i, f.name), i, func(w *world) bool {
			return w.agents[i].link == fine && w.agents[i].fate.name == ""
		}, func(w *world) { w.agents[i].fate = f }}
	}
}

var (
	lost    = fated(fate{name: "is lost", there: never})
	mute    = fated(fate{name: "is not answered", there: oneWay, back: never})
	slow    = fated(fate{name: "is answered late", there: oneWay, back: 200 * millisecond})
	late    = fated(fate{name: "is executed late", there: 200 * millisecond, back: oneWay})
	stray   = fated(fate{name: "is executed when nobody waits for it", there: 700 * millisecond, back: oneWay})
	doubled = fated(fate{name: "is executed twice", there: oneWay, back: oneWay, again: 300 * millisecond})
)

// busy is time in which agents are asked for n at a time, every 50 ms.
func busy(d, n int64, agents ...int) event {
	of := -1
	if len(agents) == 1 {
		of = agents[0]
	}
	return event{fmt.Sprintf("%d ms pass, and %v are busy", d/millisecond, agents), of, nil, func(w *world) {
		for end := w.now + d; w.now < end; w.run(w.now + 50*millisecond) {
			for _, i := range agents {
				w.agents[i].ask(n, 1)
			}
		}
	}}
}

// all does to all agents what f does to one.
func all(name string, f func(int) event) event {
	return event{name, -1, func(w *world) bool { return f(0).can(w) }, func(w *world) {
		for i := range w.agents {
			f(i).do(w)
		}
	}}
}

func blackout() event { return all("nobody reaches the server", sever) }
func light() event    { return all("all reach the server", mend) }
func hangAll() event  { return all("the server hangs", hang) }
func goesOn() event   { return all("the server goes on", mend) }

// first is the agent's oldest call for which ok holds.
func (g *gateway) first(ok func(*call) bool) *call {
	for _, c := range g.calls {
		if c.at == 0 && ok(c) {
			return c
		}
	}
	return nil
}

func on(i int, name string, ok func(*call) bool, do func(g *gateway, c *call)) event {
	return event{fmt.Sprintf("%s %d", name, i), i, func(w *world) bool { return w.agents[i].first(ok) != nil }, func(w *world) {
		g := w.agents[i]
		do(g, g.first(ok))
	}}
}

// reach has the hung server execute the agent's oldest call that it did not.
func reach(i int) event {
	return on(i, "execute the call of", func(c *call) bool { return c.executed == 0 }, (*gateway).execute)
}

// again has the oldest executed call executed once more.
func again(i int) event {
	return on(i, "execute again the call of", func(c *call) bool { return c.executed > 0 }, (*gateway).execute)
}

// answer has the oldest answer come.
func answer(i int) event {
	return on(i, "answer", func(c *call) bool { return c.executed > 0 && !c.over }, (*gateway).answered)
}

// fail has the agent's oldest call fail. The server may execute it all the same.
func fail(i int) event {
	return on(i, "fail the call of", func(c *call) bool { return !c.over }, func(g *gateway, c *call) { g.fails(c, "the connection broke") })
}

// pass lets time pass.
func pass(d int64) event {
	return event{fmt.Sprintf("%d ms pass", d/millisecond), -1, nil, func(w *world) { w.run(w.now + d) }}
}

// edge lets time pass to so long after the window's edge (before, if negative).
func edge(after int64) event {
	name := fmt.Sprintf("the edge, %+d ms", after/millisecond)
	return event{name, -1, nil, func(w *world) {
		length := w.c.limit.Rate.Per.Microseconds()
		at := (w.now-after)/length*length + length + after
		w.run(at)
		w.tell("it is %d ms after an edge", after/millisecond)
	}}
}

// forget has the store forget the bucket, once.
func forget() event {
	return event{"the store forgets", -1, func(w *world) bool { return len(w.forgets) == 0 }, (*world).forget}
}

// fallBack has the store lose its last write, once.
func fallBack() event {
	return event{"the store loses its last write", -1, func(w *world) bool { return len(w.forgets) == 0 && w.before != nil }, (*world).fallBack}
}
