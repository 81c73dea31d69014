package bucket

import (
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Terms are the parts of a limit that its buckets need. All buckets of a limit share them, over all tenants that have
// the plan's limit unchanged. They are never written.
type Terms struct {
	Rule  *limit.Rule // shared by many tenants; its rate and burst are not theirs
	Rate  limit.Rate
	Burst int64

	onOutage limit.Outage
	counting bool  // no rate: nothing is leased
	slots    bool  // units are slots, which requests give back
	queues   bool  // requests wait their turn unless they say otherwise
	paced    bool  // what cannot leave at once is denied, not asked for
	exact    bool  // strict: its leases are never lax
	prompt   int32 // lease.Prompt of a token bucket with a small burst; 0 for others
	timed    bool  // see InTime
	logs     bool  // a sliding window log: only what waits is granted, to be admitted at once
	most     int16 // requests that may wait their turn
	anewIn   int16 // seconds after a lease's end from which the conversation begins anew; 0 for never
	capacity int64 // the most units that the whole bucket ever holds; 0 where no request is refused for that
	credit   limit.Credit
}

// TermsOf returns the terms of a limit as a tenant holds it.
func TermsOf(h limit.Held) *Terms {
	l := &h.Rule.Limit
	t := &Terms{
		Rule: h.Rule, Rate: h.Rate, Burst: h.Burst,
		onOutage: l.OnOutage, counting: l.CountsOnly(),
		slots: l.Algorithm == limit.Concurrency, paced: l.Algorithm == limit.LeakyBucket,
		most:  int16(l.Queue), // at most limit.MaxQueue
		exact: l.EpsilonPPM == 0, timed: l.Timed(), logs: l.Algorithm == limit.SlidingWindowLog, anewIn: lease.AnewAfter(l), capacity: h.Capacity(), credit: h.Credit(),
	}
	t.queues = t.slots && l.Queue > 0
	if l.Algorithm == limit.TokenBucket && !t.counting {
		if prompt := lease.Prompt(h.Rate.Takes(h.Burst)); prompt < lease.FirstTerm/2 {
			t.prompt = int32(prompt)
		}
	}
	if t.most == 0 {
		t.most = maxWaiting
	}
	return t
}

// Same reports whether they are of limits that say the same.
func (t *Terms) Same(o *Terms) bool {
	return t.Rate == o.Rate && t.Burst == o.Burst && (t.Rule == o.Rule || t.Rule.Limit.Like(&o.Rule.Limit))
}

// Counting reports whether nothing is leased, for the limit only counts.
func (t *Terms) Counting() bool { return t.counting }

// Slots reports whether units are slots, which requests give back.
func (t *Terms) Slots() bool { return t.slots }
