package client

import (
	"context"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/match"
)

// try has the limits on trial decide requests that the other limits have decided. The policy's shadow limits decide
// those that were allowed. The shadow version's limits decide any, all requests together. They count the units that
// they admit and those that they would deny.
//
// A trial is a request of its own. Nobody waits for its answers: those that need a renewal come later.
func (c *Client) try(requests ...*request) {
	var version []*request
	denied := false
	for _, r := range requests {
		if r.set == nil || !r.set.Trying || r.looks() || r.peeks {
			continue
		}
		t := r.set.Trial
		if r.decision.Allowed {
			for i, it := range r.in(&t.Limits).each {
				r.tryAlone(&t.Limits, i, it)
			}
		}
		if denied {
			continue
		}
		of := r.trial()
		version = append(version, of)
		of.room(len(t.Version.Items))
		_ = of.cost(&t.Version) // what that version does not name costs nothing there
		for i, it := range of.in(&t.Version).each {
			if !it.Rule.Limit.Shadow && !denied {
				denied = !of.asks(&t.Version, i, it)
			}
		}
		for i, it := range r.in(&t.Version).each {
			if it.Rule.Limit.Shadow && !denied { // it would deny nothing, so the others keep what they took
				r.tryAlone(&t.Version, i, it)
			}
		}
	}
	c.endTrials(version, denied)
}

// trial returns a request for the same units, which is to ask limits on trial.
func (r *request) trial() *request {
	of := r.c.request(r.n, r.costs, r.attrs)
	of.set, of.endless, of.background = r.set, r.endless, true
	return of
}

// tryAlone asks one limit by itself.
func (r *request) tryAlone(list *agent.List, i int, it *match.Item) {
	of := r.trial()
	of.room(1)
	_ = of.cost(list)
	r.c.endTrials([]*request{of}, !of.asks(list, i, it))
}

// asks asks a limit on trial, if it makes units of the costs and its bucket can be had. Units not counted here are
// counted nowhere. It reports false where the limit denied.
func (r *request) asks(list *agent.List, i int, it *match.Item) bool {
	if n, err := r.weighed(it); n == 0 || err != nil {
		return true
	}
	e, err := r.bucket(list, i)
	return err != nil || r.askLimit(context.Background(), it, e) == onward
}

// endTrials ends trials that are admitted together, when all answers are there. If one is denied nothing is taken.
func (c *Client) endTrials(trials []*request, denied bool) {
	end := func() {
		for _, r := range trials {
			denied = denied || r.waitForAnswers(context.Background()) != onward
		}
		for _, r := range trials {
			if denied {
				r.giveBack(false)
			}
			r.end()
		}
	}
	waiting := 0
	for _, r := range trials {
		waiting += r.waiting
	}
	c.mu.Lock()
	inline := denied || waiting == 0 || c.ended // after Close all are answered
	if !inline {
		c.trials.Go(end)
	}
	c.mu.Unlock()
	if inline {
		end()
	}
}
