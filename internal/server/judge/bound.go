package judge

import (
	"math"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// boundMargin is how long a server that died may have granted a limit's rate without recording it. A server records
// every ten seconds, and writing may take as long again.
const boundMargin = 30 * time.Second

// Bound is what a limit may admit: by its definition alone, whatever was leased.
type Bound struct {
	Free   bool    // without a lease, as much as is asked for, so that nothing can be held against it
	Margin int64   // units of a bucket in boundMargin, its burst or window included
	Rate   float64 // units of a bucket a second
}

// BoundOf is a limit's bound.
func BoundOf(l *limit.Limit) Bound {
	b := Bound{Free: l.CountsOnly() || l.Slots > 0 || l.Shadow || l.OnOutage == limit.OutageOpen || l.FirstTouch == limit.TouchAdmit ||
		l.Enforcement == limit.Soft && l.OveragePPM == 0}
	each := func(r limit.Rate, burst int64) {
		if r.Units == 0 || r.Per <= 0 {
			return
		}
		rate, margin := float64(r.Units)/r.Per.Seconds(), float64(r.Units)
		if !l.Algorithm.Windowed() && l.Algorithm != limit.SlidingWindowLog {
			margin = math.Ceil(rate*boundMargin.Seconds()) + float64(burst)
		}
		above := 1 + float64(l.OveragePPM)/limit.Micro
		b.Rate, b.Margin = max(b.Rate, rate*above), max(b.Margin, int64(margin*above)+l.Borrow)
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

// Or is the bound of either of two limits of one name.
func (b Bound) Or(o Bound) Bound {
	return Bound{b.Free || o.Free, max(b.Margin, o.Margin), max(b.Rate, o.Rate)}
}
