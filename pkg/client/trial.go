package client

import (
	"sync"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/session"
)

// try has the limits on trial decide a request that the others have decided already: shadow limits of
// the policy in force where it was allowed, and the shadow version in any case. They count
// what they admit and what they would deny, and the request neither waits nor is denied.
func (c *Client) try(set *agent.Set, n int64, a []limit.Attribute, allowed bool) {
	c.tryAs(new(conjunction), set, n, a, allowed)
}

// tryAs is try of a request of which the shadow version's limits have decided some, or others that are decided together with it.
func (c *Client) tryAs(all *conjunction, set *agent.Set, n int64, a []limit.Attribute, allowed bool) {
	t := set.Trial
	if allowed {
		for i := range t.Limits.Items {
			c.tryOne(set, &t.Limits, i, n, a, new(conjunction))
		}
	}
	if all.denied() {
		return
	}
	for i := range t.Version.Items {
		if t.Version.Items[i].Rule.Limit.Shadow {
			continue
		}
		if c.tryOne(set, &t.Version, i, n, a, all); all.denied() {
			return
		}
	}
	for i := range t.Version.Items {
		if t.Version.Items[i].Rule.Limit.Shadow { // which would deny nothing, so takes nothing back of the others
			c.tryOne(set, &t.Version, i, n, a, new(conjunction))
		}
	}
}

// conjunction is the attempts of one request: the first that is refused undoes the others.
// Some of them may wait for a renewal long after the request.
type conjunction struct {
	mu       sync.Mutex
	refused  bool
	attempts []attempt
}

// attempt is a take from one bucket on trial.
type attempt struct {
	entry *agent.Entry
	n     int64
	waits *bucket.Waiter // for a renewal; nil
	taken bool
}

func (all *conjunction) denied() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.refused
}

// add begins an attempt and returns its place.
func (all *conjunction) add(e *agent.Entry, n int64) int {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.attempts = append(all.attempts, attempt{entry: e, n: n})
	return len(all.attempts) - 1
}

// await says what attempt i waits for; false where it need not, for another was refused meanwhile.
func (all *conjunction) await(i int, w *bucket.Waiter) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if !all.refused {
		all.attempts[i].waits = w
	}
	return !all.refused
}

// withdraw ends attempt i without a refusal, and reports whether the others go on.
func (all *conjunction) withdraw(i int) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.attempts[i].waits = nil
	return !all.refused
}

// end says what became of attempt i.
func (all *conjunction) end(i int, admitted bool) { session.Serve(all.decide(i, admitted)) }

// decide is end, and returns requests that it let in, whose Done is to be run.
func (all *conjunction) decide(i int, admitted bool) (after []*bucket.Waiter) {
	all.mu.Lock()
	defer all.mu.Unlock()
	at := &all.attempts[i]
	at.waits, at.taken = nil, admitted
	if admitted && !all.refused {
		return nil
	}
	all.refused = true
	for i := range all.attempts {
		at := &all.attempts[i]
		switch {
		case at.taken:
			at.entry.PutBack(at.n)
			at.taken = false
		case at.waits != nil:
			if served, was := at.entry.Abandon(at.waits, false); was {
				at.waits = nil
				after = append(after, served...)
			}
		}
	}
	return after
}

// tryOne takes from the request's bucket of one limit, if it holds the request and a bucket
// can be had. What only a renewal can tell is told later.
func (c *Client) tryOne(set *agent.Set, list *agent.List, i int, n int64, a []limit.Attribute, all *conjunction) {
	it := &list.Items[i]
	if !it.Rule.Applies(a) || it.Vet && it.Rule.Listed(a) == limit.AllowedBy {
		return
	}
	e := c.reg.Entry(list, i, a)
	if e == nil || e.Dead() {
		var err error
		if e, err = c.reg.Touch(set, list, i, a, c.now()); err != nil {
			return // what is not counted here is counted nowhere
		}
	}
	if it.Vet && c.vetted(it, e, n, a) != ReasonLimit {
		e.Refuse(n)
		all.end(all.add(e, n), false)
		return
	}
	c.tryBucket(e, n, all, it.Soft)
}

// tryBucket takes from a bucket; what one of a soft limit refuses is asked of what that admits above itself.
func (c *Client) tryBucket(e *agent.Entry, n int64, all *conjunction, soft bool) {
	i := all.add(e, n)
	if e.Take(n) {
		all.end(i, true)
		return
	}
	switch v, _ := c.refill(e, n, false); v.Outcome {
	case bucket.Admitted, bucket.Denied:
		c.tried(e, n, all, i, v.Outcome, soft)
	case bucket.Wait:
		w := &bucket.Waiter{Units: n}
		w.Done = func(bucket.Verdict) { c.tried(e, n, all, i, w.Verdict().Outcome, soft) }
		if !all.await(i, w) {
			return
		}
		if !c.enqueue(e, w, false) {
			all.end(i, false)
		}
	}
}

// tried goes on with what attempt i came to.
func (c *Client) tried(e *agent.Entry, n int64, all *conjunction, i int, o bucket.Outcome, soft bool) {
	if o != bucket.Denied || !soft || !all.withdraw(i) {
		all.end(i, o == bucket.Admitted)
		return
	}
	beyond, err := c.reg.Beyond(e, c.now())
	if err != nil {
		all.end(i, false)
		return
	}
	e.Excuse(n)
	c.tryBucket(beyond, n, all, false)
}
