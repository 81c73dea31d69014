package gateway

import (
	"fmt"
	"time"
)

// Allowance is a limit's bound. In every window of length W, at least a second, admitted ≤ (1 + Epsilon) × (Rate × W +
// Burst).
type Allowance struct {
	Rate    float64 // units a second
	Burst   float64
	Epsilon float64
}

func (a Allowance) of(window time.Duration) float64 {
	return (1 + a.Epsilon) * (a.Rate*window.Seconds() + a.Burst)
}

// Peak is the fullest window of a tenant.
type Peak struct {
	Window   time.Duration
	Start    time.Time
	Admitted int64
	Bound    float64
}

// Over reports whether the peak is above its bound.
func (p Peak) Over() bool { return float64(p.Admitted) > p.Bound }

func (p Peak) String() string {
	return fmt.Sprintf("%d in %v from %s, bound %.1f", p.Admitted, p.Window, p.Start.UTC().Format("15:04:05.0"), p.Bound)
}

// Peak returns the fullest window of that length, over all starts at a bin. The
// window must be whole bins.
func (r *Record) Peak(tenant string, a Allowance, window time.Duration) Peak {
	peak := Peak{Window: window, Bound: a.of(window)}
	first, last := int64(0), int64(-1)
	for b := range r.Admitted {
		if b.Tenant != tenant {
			continue
		}
		if last < first {
			first, last = b.At, b.At
		}
		first, last = min(first, b.At), max(last, b.At)
	}
	bins := int64(window / BinLength)
	sum := int64(0)
	for at := first; at <= last; at++ {
		sum += r.Admitted[Bin{at, tenant}] - r.Admitted[Bin{at - bins, tenant}]
		if sum > peak.Admitted {
			peak.Admitted = sum
			peak.Start = time.UnixMilli((at - bins + 1) * BinLength.Milliseconds())
		}
	}
	return peak
}
