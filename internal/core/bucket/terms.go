package bucket

import "github.com/f4ee788f/quota/internal/core/limit"

// Terms are what buckets take from their limit. All buckets of a limit share them, and those of all tenants that have the plan's
// limit as it is; they are never written.
type Terms struct {
	Rule  *limit.Rule // which many tenants share; what it says of rate and burst is not theirs
	Rate  limit.Rate
	Burst int64

	onOutage limit.Outage
	counting bool  // no rate: nothing is leased
	slots    bool  // units are slots, which requests give back
	queues   bool  // requests wait their turn unless they say otherwise
	paced    bool  // what cannot leave at once is denied, not asked for
	touch    bool  // the first units are admitted on credit
	exact    bool  // strict: its leases are never lax
	most     int16 // requests that may wait their turn
	anewIn   int16 // seconds after a lease's end from which the conversation begins anew; 0 for never
	capacity int64 // the most units that the whole bucket ever holds; 0 where no request is refused for that
}

// TermsOf returns the terms of a limit as a tenant holds it.
func TermsOf(h *limit.Held) *Terms {
	l := &h.Rule.Limit
	t := &Terms{
		Rule: h.Rule, Rate: h.Rate, Burst: h.Burst,
		onOutage: l.OnOutage, counting: l.CountsOnly(), slots: l.Algorithm == limit.Concurrency, paced: l.Algorithm == limit.LeakyBucket,
		touch: l.FirstTouch == limit.TouchAdmit, most: int16(l.Queue), // at most limit.MaxQueue
		exact: l.EpsilonPPM == 0, anewIn: anewAfter(l), capacity: CapacityOf(h),
	}
	t.queues = t.slots && l.Queue > 0
	if t.most == 0 {
		t.most = maxWaiting
	}
	return t
}

// TermsAlone are those of a limit that no tenant is known to hold.
func TermsAlone(l *limit.Limit) *Terms {
	held := (&limit.Rule{Limit: *l}).Hold()
	return TermsOf(&held)
}

// Same reports whether they are of limits that say the same.
func (t *Terms) Same(o *Terms) bool {
	return t.Rate == o.Rate && t.Burst == o.Burst && (t.Rule == o.Rule || t.Rule.Limit.Like(&o.Rule.Limit))
}

// Counting reports whether nothing is leased, for the limit only counts.
func (t *Terms) Counting() bool { return t.counting }

// Slots reports whether units are slots, which requests give back.
func (t *Terms) Slots() bool { return t.slots }

// CapacityOf is the most units that a bucket of the limit holds, and so what a new one has; 0 where nothing says so.
func CapacityOf(h *limit.Held) int64 {
	switch h.Rule.Limit.Algorithm {
	case limit.FixedWindow, limit.SlidingWindow, limit.SlidingWindowLog:
		return h.Rate.Units
	case limit.Concurrency:
		return h.Rule.Limit.Slots
	default:
		return h.Burst
	}
}
