package main

import (
	"fmt"
	"strings"
	"time"
)

// subject is a tenant of a run: what its plan allows, and what its callers ask for at each gateway, in requests a
// second.
type subject struct {
	tenant      string
	rate, burst float64
	window      time.Duration // of a fixed window of rate units; 0 for a token bucket
	asks        float64
}

var subjects = []subject{
	{"crowd", 200, 100, 0, 120}, // two and a half times its rate over four gateways
	{"edge", 500, 250, 0, 115},  // just below its rate
	{"calm", 2000, 500, 0, 50},
	{"small", 20, 10, 0, 15}, // a few tokens a second for four gateways
	{"window", 1500, 0, 10 * time.Second, 50},
}

// epsilon is the policy's default.
const epsilon = 0.05

// document is the policy of the subjects.
func document() string {
	var plans, tenants strings.Builder
	for _, s := range subjects {
		limit := fmt.Sprintf("rate: %.0f/second, burst: %.0f", s.rate, s.burst)
		if s.window > 0 {
			limit = fmt.Sprintf("algorithm: fixed_window, rate: %.0f/%v", s.rate, s.window)
		}
		fmt.Fprintf(&plans, "  %s:\n    limits:\n      - {name: requests, by: [tenant], %s, meter: requests}\n", s.tenant, limit)
		fmt.Fprintf(&tenants, "  - {id: %s, plan: %s}\n", s.tenant, s.tenant)
	}
	return "plans:\n" + plans.String() + "tenants:\n" + tenants.String()
}

// demands is what a gateway asks for, or a share of it.
func demands(share float64) string {
	var list []string
	for _, s := range subjects {
		list = append(list, fmt.Sprintf("%s=%g", s.tenant, s.asks*share))
	}
	return strings.Join(list, ",")
}

func tenantNames() (names []string) {
	for _, s := range subjects {
		names = append(names, s.tenant)
	}
	return names
}
