package server_test

import (
	"context"
	"strings"
	"testing"
	"time"
)

const seldomPolicy = `
default_plan: p
plans:
  p:
    limits:
      - {name: logins, by: [tenant], algorithm: ALGORITHM, rate: 5/hour}
`

// A gateway forgets a bucket that is idle, and what it spent of it. The limit holds all the same: of requests that come
// one in three minutes five are admitted in an hour, and what refills.
func TestSeldomRequests(t *testing.T) {
	for algorithm, want := range map[string]int{"sliding_window_log": 5, "fixed_window": 5, "sliding_window": 5, "token_bucket": 5 + 4} {
		text := strings.ReplaceAll(seldomPolicy, "ALGORITHM", algorithm)
		inWorld(t, time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC), text, func(t *testing.T, w *world) {
			g := w.gateway("gateway")
			admitted := 0
			for range 19 {
				if g.Allow(context.Background(), acme()...).Allowed {
					admitted++
				}
				time.Sleep(3 * time.Minute)
			}
			if admitted != want {
				t.Errorf("%s: %d admitted in 57 minutes, want %d", algorithm, admitted, want)
			}
			w.shut(g)
		})
	}
}
