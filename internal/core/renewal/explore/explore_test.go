package explore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

// setting is what is explored: a limit, its agents, and what may happen to them.
type setting struct {
	name   string
	limit  limit.Limit
	agents int
	depth  int     // events in a sequence, at most
	first  []event // happen before
	events []event
	untold bool // servers do not notice that the store forgot
	// fallsBack: the store may lose its last write.
	fallsBack bool
	exact     bool // the way of an answer is no excuse

	rules *limit.Rules
	spare []*agent.Registry
}

func (c *setting) queues() bool { return c.limit.Queue > 0 }
func (c *setting) slots() bool  { return c.limit.Algorithm == limit.Concurrency }

// spec is the limit as a server hands it to the store at now.
func (c *setting) spec(now int64) lease.Spec {
	l := &c.limit
	s := lease.Spec{
		Algorithm: l.Algorithm, Units: max(l.Rate.Units, l.Slots), Period: l.Rate.Per.Microseconds(), Burst: l.Burst, EpsilonPPM: l.EpsilonPPM,
		Borrow: l.Borrow, Lockout: l.Lockout.Microseconds(), Hold: l.FallbackHold.Microseconds(),
	}
	if p := s.Period; l.Algorithm.Windowed() {
		s.WindowStart = now / p * p
		s.WindowEnd, s.NextWindowEnd = s.WindowStart+p, s.WindowStart+2*p
	}
	return s
}

// compile makes the rules of the limit.
func (c *setting) compile() {
	l := c.limit
	l.Name, l.By = "l", []string{"key"}
	rules, err := limit.CompilePolicy(&limit.Policy{Version: 1, Limits: []limit.Limit{l}})
	if err != nil {
		panic(err)
	}
	c.rules = rules
	c.limit = l
}

// found is what exploring came to.
type found struct {
	states, sequences int
	broken            string  // what the oracle says; "" for nothing
	events            []uint8 // of a shortest sequence that breaks it
	heals             bool    // what is broken shows once all is mended
}

// node is a sequence of events that leads to a state of its own.
type node struct {
	events []uint8
	can    uint64 // what may happen next, a bit for each event
}

// explore plays every sequence of events, the shorter ones first, until one breaks what the oracle demands. Sequences that
// lead to the same state go on as one. Those of the greatest depth are not asked whether they heal.
func (c *setting) explore() (f found) {
	c.compile()
	seen := map[uint64]bool{}
	look := func(events []uint8, more ...uint8) (n node, goesOn bool) {
		f.sequences++
		events = append(append(make([]uint8, 0, len(events)+1), events...), more...)
		w := c.play(events, nil)
		if f.broken = w.judge(); f.broken != "" {
			f.events = events
			return n, false
		}
		sum := w.digest()
		fresh := !seen[sum]
		seen[sum] = true
		if fresh && len(events) < c.depth {
			n = node{events, c.can(w, events)}
			if f.broken = w.heal(); f.broken != "" {
				f.events, f.heals = events, true
			}
		}
		w.end()
		return n, fresh
	}
	root, _ := look(nil)
	layer := []node{root}
	for len(layer) > 0 && f.broken == "" {
		var next []node
		for _, n := range layer {
			for k := range c.events {
				if n.can&(1<<k) == 0 {
					continue
				}
				after, fresh := look(n.events, uint8(k))
				if f.broken != "" {
					return f
				}
				if fresh {
					next = append(next, after)
				}
			}
		}
		layer = next
	}
	f.states = len(seen)
	return f
}

// can returns which events may follow.
func (c *setting) can(w *world, events []uint8) (can uint64) {
	for k := range c.events {
		e := &c.events[k]
		if len(c.first) == 0 && e.agent > 0 && !c.met(events, e.agent-1) {
			continue // agents are alike: the first comes first
		}
		if e.can == nil || e.can(w) {
			can |= 1 << k
		}
	}
	return can
}

// met reports whether any of the events is the agent's.
func (c *setting) met(events []uint8, agent int) bool {
	for _, k := range events {
		if c.events[k].agent == agent {
			return true
		}
	}
	return false
}

// play plays events from the beginning, and tells of them if it has whom to.
func (c *setting) play(events []uint8, story *strings.Builder) *world {
	w := newWorld(c)
	w.story = story
	happens := func(e *event) {
		if story != nil {
			fmt.Fprintf(story, "%s\n", e.name)
		}
		e.do(w)
	}
	for i := range c.first {
		happens(&c.first[i])
	}
	for _, k := range events {
		happens(&c.events[k])
	}
	return w
}

// broken is how a counterexample begins.
const broken = "a counterexample of"

// tell is the story of events and of what they break.
func (c *setting) tell(f *found) string {
	var story strings.Builder
	w := c.play(f.events, &story)
	if f.heals {
		w.heal()
	}
	return fmt.Sprintf("%s: %s %d events: %s\n%s", c.name, broken, len(f.events), f.broken, folded(story.String()))
}

// folded writes lines that repeat once.
func folded(story string) string {
	var out strings.Builder
	last, times := "", 0
	for _, line := range append(strings.Split(strings.TrimSuffix(story, "\n"), "\n"), "") {
		if line == last {
			times++
			continue
		}
		if times > 1 {
			last = fmt.Sprintf("%s (%d times)", last, times)
		}
		if times > 0 {
			fmt.Fprintln(&out, last)
		}
		last, times = line, 1
	}
	return out.String()
}

// Every sequence of events keeps the bound.
func TestExplore(t *testing.T) {
	unraced.Only(t)
	each(t, settings(), func(t *testing.T, c *setting, f *found) {
		if f.broken != "" {
			t.Error(c.tell(f))
		}
		t.Logf("%d sequences, %d states", f.sequences, f.states)
	})
}

// each explores all settings, side by side.
func each(t *testing.T, all []*setting, check func(*testing.T, *setting, *found)) {
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := c.explore()
			check(t, c, &f)
		})
	}
}

// Some sequence of events breaks the bound where that is known.
func TestKnown(t *testing.T) {
	unraced.Only(t)
	each(t, known(), func(t *testing.T, c *setting, f *found) {
		if f.broken == "" {
			t.Fatalf("it holds, in %d sequences: move it from known to settings", f.sequences)
		}
		t.Log(c.tell(f))
	})
}
