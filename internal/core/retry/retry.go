// Package retry says when to try again, so that not all do at once.
package retry

import (
	"math/rand/v2"
	"time"
)

// Jitter returns d, give or take up to the fraction f of it.
func Jitter(d time.Duration, f float64) time.Duration { return JitterBy(d, f, rand.Float64()) }

// JitterBy is Jitter at a place in the range, from [0, 1).
func JitterBy(d time.Duration, f, place float64) time.Duration {
	return time.Duration(float64(d) * (1 + f*(2*place-1)))
}

// In returns how long to wait after so many failures: twice as long each time, from first to last, with jitter.
func In(fails int, first, last time.Duration) time.Duration {
	return Backoff(fails, first, last, rand.Float64())
}

// Backoff is In with the jitter at a place in its range, from [0, 1).
func Backoff(fails int, first, last time.Duration, place float64) time.Duration {
	d := first << min(fails-1, 16)
	if d > last || d <= 0 {
		d = last
	}
	return JitterBy(d*3/4, 1./3, place)
}
