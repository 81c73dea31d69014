package client

import (
	"cmp"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// Details describes the limit behind a decision. It is the limit that denied, or the one with the fewest units left if
// all allowed. If more than four limits apply, it is one of four.
type Details struct {
	Limit     string        // its name; empty where no limit decided
	Quota     int64         // units that it allows in a Window; slots where it is a concurrency limit
	Cost      string        // the cost that units are of; empty for requests, and for sums of several
	Window    time.Duration // the time that Quota is for
	Remaining int64         // about how many units are left, over all gateways; at least 0
	Reset     time.Duration // time until the bucket is full again, or its window turns
}

// Details returns the details of the decision's limit, looked up at the time of the call.
func (d Decision) Details() Details {
	if told, ok := d.by.(*Details); ok {
		return *told
	}
	t := d.tightest()
	if t.rule == nil {
		return Details{}
	}
	return t.details()
}

func (t *tightest) details() Details {
	l := &t.rule.Limit
	told := Details{
		Limit: l.Name, Quota: t.rate.Units, Window: t.rate.Per,
		Remaining: max(t.state.Remaining, t.state.Tokens, 0), Reset: micros(t.state.ResetIn),
	}
	if cost := l.Cost.Single(); cost != limit.Requests {
		told.Cost = cost
	}
	if l.Slots > 0 {
		told.Quota = l.Slots
	}
	return told
}

// ByUnit returns the details of the limits behind a decision by what their units are: "requests", a cost's name, or
// the limit's own name where it weighs several costs. Of several limits of one unit it is the one with the fewest left.
// Limits of slots are left out, and so are limits that weigh and are called as a cost, for it would be taken for that.
// As Details it knows four limits of an allowed decision, and of a denial the one that denied. Of a decision made
// elsewhere it knows one, by its cost or its name.
func (d Decision) ByUnit() map[string]Details {
	if told, ok := d.by.(*Details); ok {
		return map[string]Details{cmp.Or(told.Cost, told.Limit): *told}
	}
	all := make(map[string]Details)
	add := func(t tightest) {
		if t.rule == nil || t.rule.Limit.CountsOnly() {
			return
		}
		unit := t.rule.Unit()
		if unit == "" {
			return
		}
		if was, is := all[unit]; !is || t.details().Remaining < was.Remaining {
			all[unit] = t.details()
		}
	}
	add(d.tightest())
	var more []*agent.Entry
	switch by := d.by.(type) {
	case *agent.Resolution:
		for i := range by.Limits() {
			more = append(more, by.Entry(i))
		}
	case *origin:
		more = append(by.others[:], by.entry)
	}
	for _, e := range more {
		if e == nil || e.Overage() || !d.Allowed {
			continue
		}
		var t tightest
		t.is(e.Held())
		t.state = e.State(e.Registry().Now())
		add(t)
	}
	return all
}

// origin is a decision's source where a bucket alone does not say it all.
type origin struct {
	item   *match.Item // the limit that denied, or the strictest that allowed
	entry  *agent.Entry
	others others      // that allowed as well
	slots  *slotsInUse // nil for none
}

// others are further buckets that allowed a request, as many as fit.
type others [3]*agent.Entry

func (o *others) add(e *agent.Entry) {
	for i := range o {
		if o[i] == nil {
			o[i] = e
			return
		}
	}
}

// sourceOf returns the source of a decision by one limit.
func sourceOf(it *match.Item, e *agent.Entry) any {
	if e.Overage() {
		return &origin{item: it, entry: e} // the bucket does not know the limit's words
	}
	return e
}

// sourceIn is sourceOf a limit whose bucket may be nil.
func sourceIn(set *agent.Set, it *match.Item, e *agent.Entry) any {
	if e == nil {
		h := set.Held(it)
		return &h
	}
	return sourceOf(it, e)
}

// tightest is the limit that Details tells of.
type tightest struct {
	rule  *limit.Rule // nil for none
	rate  limit.Rate  // of the tenant, which may have its own
	state bucket.State
}

// is makes it a limit as a tenant has it.
func (t *tightest) is(h limit.Held) { t.rule, t.rate = h.Rule, h.Rate }

// tightest finds the limit that denied. Of those that allowed it is the one with the fewest units left, the strictest
// of them if several have as many.
func (d *Decision) tightest() (t tightest) {
	var it *match.Item
	var e *agent.Entry
	var more others
	switch by := d.by.(type) {
	case nil:
		return t
	case *limit.Held:
		if t.is(*by); d.Allowed {
			t.state.Remaining = by.Capacity() // there is no bucket yet
		}
		return t
	case *agent.Entry:
		e = by
	case *agent.Resolution:
		e = by.Entry(by.Strictest())
		for i := range by.Limits() {
			if i != by.Strictest() {
				more.add(by.Entry(i))
			}
		}
	case *origin:
		it, e, more = by.item, by.entry, by.others
	}
	now := e.Registry().Now()
	t.state = e.State(now)
	if e.Overage() {
		t.is(it.Rule.Hold()) // no tenant has it at another rate
		if e.Held().Rule.Limit.CountsOnly() {
			t.state = bucket.State{} // the limit is used up, and its overage has no end
		}
	} else {
		t.is(e.Held())
	}
	for _, o := range more {
		if o == nil || !d.Allowed {
			break
		}
		h := o.Held()
		if h.Rule.Limit.CountsOnly() {
			continue
		}
		if s := o.State(now); t.rule.Limit.CountsOnly() || s.Remaining < t.state.Remaining {
			t.is(h)
			t.state = s
		}
	}
	return t
}
