package load

import (
	"testing"
	"testing/synctest"
	"time"
)

// The warming ends once renewals are as many as they were and decisions as many as asked for, and after its time at the latest.
func TestWarmingEndsOnceLeasesAreNotNew(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration // terms are grown
		slow  time.Duration // the server can do no more
		most  time.Duration
		want  time.Duration
	}{
		{"soon", 0, 0, 2 * time.Minute, 2 * warmStep},
		{"later", 33 * time.Second, 0, 2 * time.Minute, 45 * time.Second},
		{"not in time", time.Hour, 0, 40 * time.Second, 40 * time.Second},
		{"a server that can do no more", 0, 33 * time.Second, 2 * time.Minute, 40 * time.Second},
		{"no warming", 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				l := load{Config: Config{Warm: c.most, Rate: 1000}}
				// Halved every second until then, and then the same.
				count := func() (n, decisions float64) {
					each := 1e12
					for s := range int(time.Since(begin).Seconds()) {
						if n += each; time.Duration(s)*time.Second < c.after {
							each /= 2
						}
					}
					slow := min(time.Since(begin), c.slow).Seconds()
					return n, 1000*time.Since(begin).Seconds() - 500*slow
				}
				if got := l.warm(t.Context(), count); got != c.want {
					t.Errorf("warm for %v, want %v", got, c.want)
				}
			})
		})
	}
}
