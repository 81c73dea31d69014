package sim

import (
	"errors"
	"slices"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/renewal"
)

// What internal/core/session does around renewals, over the simulated network.

const (
	// noticed is how long servers take to notice that the store forgot: they look this often.
	noticed = 250 * millisecond
	// noLoss is what a server says of a store that lost nothing.
	noLoss = 1
)

// attend has the loop look at a bucket.
func (g *gateway) attend(e *agent.Entry) {
	if e.Queue() {
		g.queue = append(g.queue, e)
		g.wakeAt(g.w.now + waking)
	}
}

// wakeAt has the loop go on at a time, unless it does before.
func (g *gateway) wakeAt(t int64) {
	if g.wakes != 0 && g.wakes <= t {
		return
	}
	g.wakes = t
	g.w.at(t, func() {
		g.run(func() {
			if g.wakes == t {
				g.step()
			}
		})
	})
}

// step is a turn of the loop.
func (g *gateway) step() {
	g.wakes = 0
	now, queue := g.clock(), g.queue
	g.queue = nil
	g.renewals.Attend(now, queue)
	if strain := g.w.sc.Faults.Strain; strain > 0 {
		g.renewals.Strained(now, float64(strain))
	}
	if next := g.renewals.Step(now); next != bucket.Never {
		g.wakeAt(max(next-g.skew, g.w.now+1))
	}
}

var errUnanswered = errors.New("sim: the call was not answered")

// Send makes one call: its request and its answer may each be lost, or come twice.
func (g *gateway) Send(c *renewal.Call) {
	w := g.w
	sent, renewals := w.now, slices.Clone(c.Renewals)
	w.m.calls++
	w.m.renew(len(renewals))
	over := false
	end := func(answers []lease.Answer) {
		g.run(func() {
			if !over {
				over = true
				g.ended(c, w.now-sent, answers)
			}
		})
	}
	f := &w.sc.Faults
	ok, refused := f.reachable(g.place, w.now)
	if refused {
		w.after(millisecond, func() { end(nil) })
		return
	}
	w.after(c.Patience.Microseconds(), func() { end(nil) })
	copies := 1
	if chance(w.network, f.Duplicate) {
		copies = 2
	}
	for range copies {
		if !ok || chance(w.network, f.Loss) {
			continue
		}
		w.after(w.latency(), func() {
			answers := make([]lease.Answer, len(renewals))
			for i, e := range c.Entries {
				answers[i] = w.store.renew(bucketID{keyOf(e), g.place}, g.name, renewals[i])
			}
			if ok, _ := f.reachable(g.place, w.now); !ok || chance(w.network, f.Loss) {
				return
			}
			w.after(w.latency(), func() { end(answers) })
		})
	}
}

// ended puts the answers to use; nil where the call failed.
func (g *gateway) ended(c *renewal.Call, took int64, answers []lease.Answer) {
	if answers == nil {
		g.renewals.Failed(g.clock(), c, took, errUnanswered)
	} else {
		g.renewals.Answered(g.clock(), c, took, func(i int) lease.Answer { return answers[i] })
	}
	g.giveUp()
	g.step()
}

// Granted counts an answer that brought a lease.
func (g *gateway) Granted(e *agent.Entry, _ *bucket.Answered, _ *lease.Grant) {
	g.buckets[keyOf(e)].answers++
}

// Refused stops the run: the store refuses what the product sends.
func (g *gateway) Refused(e *agent.Entry, why error) { panic(why) }

// Questions asks for no tenants: there are none.
func (g *gateway) Questions(int64) ([]*agent.Tenant, int64) { return nil, bucket.Never }

// Contact changes nothing: decisions ask the renewals.
func (g *gateway) Contact(bool, error) {}

// Exceeded is not counted: the bound is held against what was admitted (bound.go).
func (g *gateway) Exceeded(*agent.Entry, renewal.Excess) {}

// Drop keeps the bucket: runs are short.
func (g *gateway) Drop(*agent.Entry) bool { return false }

// tell has servers tell every agent that the store lost leases; those that cannot be reached, when they follow changes
// again.
func (w *world) tell(lost int64) {
	for _, g := range w.gateways {
		w.after(w.latency(), func() { g.run(func() { g.hear(lost) }) })
	}
}

func (g *gateway) hear(lost int64) {
	if ok, _ := g.w.sc.Faults.reachable(g.place, g.w.now); !ok {
		g.w.after(second, func() { g.run(func() { g.hear(lost) }) })
		return
	}
	g.renewals.Declare(g.clock(), noLoss+lost)
	g.wakeAt(g.w.now + waking)
}
