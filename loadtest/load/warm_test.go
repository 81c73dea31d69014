package load

import (
	"testing"
	"testing/synctest"
	"time"
)

// The warming ends once renewals are as many as they were, and after its time at the latest.
func TestWarmingEndsOnceLeasesAreNotNew(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration // terms are grown
		most  time.Duration
		want  time.Duration
	}{
		{"soon", 0, 2 * time.Minute, 2 * warmStep},
		{"later", 33 * time.Second, 2 * time.Minute, 45 * time.Second},
		{"not in time", time.Hour, 40 * time.Second, 40 * time.Second},
		{"no warming", 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				l := load{Config: Config{Warm: c.most}}
				// Halved every second until then, and then the same.
				renewals := func() float64 {
					n, each := 0.0, 1e12
					for s := range int(time.Since(begin).Seconds()) {
						if n += each; time.Duration(s)*time.Second < c.after {
							each /= 2
						}
					}
					return n
				}
				if got := l.warm(t.Context(), renewals); got != c.want {
					t.Errorf("warm for %v, want %v", got, c.want)
				}
			})
		})
	}
}
