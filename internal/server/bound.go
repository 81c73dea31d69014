package server

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// bound is what a limit may admit: by its definition alone, whatever was leased.
type bound struct {
	free   bool    // without a lease, as much as is asked for, so that nothing can be held against it
	margin int64   // units of a bucket in overdrawnMargin, its burst or window included
	rate   float64 // units of a bucket a second
}

// boundOf is a limit's bound.
func boundOf(l *limit.Limit) bound {
	b := bound{free: l.CountsOnly() || l.Slots > 0 || l.Shadow || l.OnOutage == limit.OutageOpen || l.FirstTouch == limit.TouchAdmit ||
		l.Enforcement == limit.Soft && l.OveragePPM == 0}
	each := func(r limit.Rate, burst int64) {
		if r.Units == 0 || r.Per <= 0 {
			return
		}
		rate, margin := float64(r.Units)/r.Per.Seconds(), float64(r.Units)
		if !l.Algorithm.Windowed() && l.Algorithm != limit.SlidingWindowLog {
			margin = math.Ceil(rate*overdrawnMargin.Seconds()) + float64(burst)
		}
		above := 1 + float64(l.OveragePPM)/limit.Micro
		b.rate, b.margin = max(b.rate, rate*above), max(b.margin, int64(margin*above)+l.Borrow)
	}
	each(l.Rate, l.Burst)
	for i := range l.Variants {
		v := &l.Variants[i]
		r, burst := v.Rate, v.Burst
		if r.Units == 0 {
			r = l.Rate
		}
		each(r, max(burst, l.Burst))
	}
	return b
}

// or is the bound of either of two limits of one name.
func (b bound) or(o bound) bound {
	return bound{b.free || o.free, max(b.margin, o.margin), max(b.rate, o.rate)}
}
