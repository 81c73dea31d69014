package client

import (
	"time"

	"github.com/f4ee788f/quota/internal/agent"
	"github.com/f4ee788f/quota/internal/limit"
)

// held is the limit that a decision speaks of: the one that denied, or the strictest that allowed.
type held struct {
	c *Client
	hold
}

// others are further buckets that allowed a request, as many as fit: which of
// them all has the least left is looked up when somebody asks.
type others [3]*agent.Entry

func othersOf(holds []hold, first int) (o others) {
	n := 0
	for i := range holds {
		if i != first && n < len(o) {
			o[n] = holds[i].entry
			n++
		}
	}
	return o
}

// speaker is the limit that a decision's headers are of, and how its bucket is.
type speaker struct {
	limit *limit.Limit // nil without one
	state agent.State
}

// speaker finds the limit that denied, or of those that allowed the one whose
// bucket has the fewest units left, the strictest of them where they are as many.
func (d *Decision) speaker() speaker {
	h := d.held
	if h.item == nil {
		return speaker{}
	}
	s := speaker{limit: &h.item.Rule.Limit}
	if h.entry == nil {
		return s
	}
	now := h.c.now()
	if s.state = h.entry.State(now); h.entry.Overage() && h.entry.Rule().Limit.CountsOnly() {
		s.state = agent.State{} // nothing is left of the limit, and its overage has none
	}
	for _, e := range d.others {
		if e == nil || !d.Allowed {
			break
		}
		rule := e.Rule()
		if rule.Limit.CountsOnly() {
			continue
		}
		if o := e.State(now); s.limit.CountsOnly() || o.Remaining < s.state.Remaining {
			s = speaker{&rule.Limit, o}
		}
	}
	return s
}

func (s *speaker) name() string {
	if s.limit == nil {
		return ""
	}
	return s.limit.Name
}

// quota is units in a window, or slots.
func (s *speaker) quota() int64 {
	switch {
	case s.limit == nil:
		return 0
	case s.limit.Slots > 0:
		return s.limit.Slots
	}
	return s.limit.Rate.Units
}

func (s *speaker) window() time.Duration {
	if s.limit == nil {
		return 0
	}
	return s.limit.Rate.Per
}

func (s *speaker) remaining() int64 { return max(s.state.Remaining, s.state.Tokens, 0) }

func (s *speaker) reset() time.Duration { return time.Duration(s.state.ResetIn) * time.Microsecond }
