package client

import (
	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// origin is what a decision keeps where neither a bucket nor what is known of a request says it all.
type origin struct {
	leg            // the limit that denied, or the strictest that allowed
	others others  // that allowed as well
	ending *ending // nil where no slots were taken
}

// speaks is what a decision keeps of the one limit that it speaks of.
func (h leg) speaks() any {
	switch {
	case h.item == nil:
		return nil
	case h.entry.Overage(): // the limit's words are not the bucket's
		return &origin{leg: h}
	}
	return h.entry
}

// speaks is leg.speaks, of a limit of which the request may have no bucket.
func speaks(set *agent.Set, it *agent.Item, e *agent.Entry) any {
	if e == nil {
		held := set.Held(it)
		return &held
	}
	return leg{it, e}.speaks()
}

// others are further buckets that allowed a request, as many as fit: which of
// them all has the least left is looked up when somebody asks.
type others [3]*agent.Entry

func othersOf(legs []leg, first int) (o others) {
	n := 0
	for i := range legs {
		if i != first && n < len(o) {
			o[n] = legs[i].entry
			n++
		}
	}
	return o
}

// othersKnown are those of a request that was known.
func othersKnown(known *agent.Resolution) (o others) {
	n := 0
	for i := range known.Limits() {
		if i != known.Strictest() && n < len(o) {
			o[n] = known.Entry(i)
			n++
		}
	}
	return o
}

// speaker is the limit that a decision's headers are of, and how its bucket is.
type speaker struct {
	limit *limit.Limit // nil without one
	rate  limit.Rate   // in place of the limit's
	state bucket.State
}

// says has it speak of a limit as a tenant has it.
func (s *speaker) says(h limit.Held) { s.limit, s.rate = &h.Rule.Limit, h.Rate }

// of has it speak of the limit whose bucket that is, or of which that bucket is of what is above it.
func (s *speaker) of(it *agent.Item, e *agent.Entry) {
	if e.Overage() {
		s.says(it.Rule.Hold()) // which nobody has at another rate
		return
	}
	s.says(e.Held())
}

// speaker finds the limit that denied, or of those that allowed the one whose
// bucket has the fewest units left, the strictest of them where they are as many.
func (d *Decision) speaker() speaker {
	var s speaker
	var e *agent.Entry
	var others others
	switch by := d.by.(type) {
	case nil:
		return s
	case *limit.Held:
		if s.says(*by); d.Allowed {
			s.state.Remaining = bucket.CapacityOf(by) // nobody was there yet
		}
		return s
	case *agent.Entry:
		e = by
		s.says(e.Held())
	case *agent.Resolution:
		e, others = by.Entry(by.Strictest()), othersKnown(by)
		s.of(by.Item(by.Strictest()), e)
	case *origin:
		e, others = by.entry, by.others
		s.of(by.item, e)
	}
	now := e.Registry().Now()
	if s.state = e.State(now); e.Overage() && e.Held().Rule.Limit.CountsOnly() {
		s.state = bucket.State{} // nothing is left of the limit, and its overage has none
	}
	for _, e := range others {
		if e == nil || !d.Allowed {
			break
		}
		held := e.Held()
		if held.Rule.Limit.CountsOnly() {
			continue
		}
		if o := e.State(now); s.limit.CountsOnly() || o.Remaining < s.state.Remaining {
			s.says(held)
			s.state = o
		}
	}
	return s
}
