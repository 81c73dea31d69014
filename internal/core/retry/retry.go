// Package retry says when to try again, so that not all do at once.
package retry

import (
	"math/rand/v2"
	"time"
)

// Jitter returns d, give or take up to the fraction f of it.
func Jitter(d time.Duration, f float64) time.Duration {
	return time.Duration(float64(d) * (1 + f*(2*rand.Float64()-1)))
}

// In returns how long to wait after so many failures: twice as long each time, from first to last, with jitter.
func In(fails int, first, last time.Duration) time.Duration {
	d := first << min(fails-1, 16)
	if d > last || d <= 0 {
		d = last
	}
	return Jitter(d*3/4, 1./3)
}
