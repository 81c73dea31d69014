package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/unraced"
	"github.com/f4ee788f/quota/pkg/client"
)

// A gateway forgets a bucket that is idle, and what it spent of it. The limit holds all the same: of requests that come
// one in three minutes five are admitted in an hour, and what refills.
func TestSeldomRequests(t *testing.T) {
	unraced.Only(t) // one goroutine asks, for an hour
	want := map[string]int{"sliding_window_log": 5, "fixed_window": 5, "sliding_window": 5, "token_bucket": 5 + 4}
	// A plan of each kind, and its only tenant, of the same name.
	var plans, tenants strings.Builder
	for algorithm := range want {
		fmt.Fprintf(&plans, "  %s: {limits: [{name: logins, by: [tenant], algorithm: %[1]s, rate: 5/hour}]}\n", algorithm)
		fmt.Fprintf(&tenants, "  - {id: %s, plan: %[1]s}\n", algorithm)
	}
	text := "plans:\n" + plans.String() + "tenants:\n" + tenants.String()
	inWorld(t, time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC), text, func(t *testing.T, w *world) {
		g := w.gateway("gateway")
		admitted := make(map[string]int)
		for range 19 {
			for algorithm := range want {
				if g.Allow(context.Background(), client.Tenant(algorithm)).Allowed {
					admitted[algorithm]++
				}
			}
			time.Sleep(3 * time.Minute)
		}
		for algorithm, n := range want {
			if admitted[algorithm] != n {
				t.Errorf("%s: %d admitted in 57 minutes, want %d", algorithm, admitted[algorithm], n)
			}
		}
		w.shut(g)
	})
}
