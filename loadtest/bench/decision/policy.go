package main

import (
	"fmt"

	"github.com/f4ee788f/quota/loadtest/bench"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Endpoints of requests that meet one limit and three.
const (
	oneLimit    = "GET /items/17"
	threeLimits = "POST /orders"
	deniedPath  = "GET /nothing"
	// deniedOfThree meets three limits; the one by user denies.
	deniedOfThree = "POST /orders/none"
)

// fiftyRules is a policy as gateways have them: exact endpoints, prefixes, address blocks and user names. A request
// meets one or three of its limits.
func fiftyRules() *quotav1.Policy {
	match := func(l *quotav1.Limit, pairs ...string) *quotav1.Limit {
		for i := 0; i < len(pairs); i += 2 {
			l.Match = append(l.Match, &quotav1.Match{Attribute: pairs[i], Patterns: []string{pairs[i+1]}})
		}
		return l
	}
	var plan, top []*quotav1.Limit
	plan = append(plan,
		match(bench.Limit("per-user", "", "user"), "endpoint", "GET /items/*"),
		match(bench.Limit("writes-per-user", "", "user"), "endpoint", threeLimits),
		match(bench.Limit("writes", "writes"), "endpoint", "POST /*"),
		match(bench.Limit(bench.Denied, "", "user"), "endpoint", deniedPath))
	nothing := plan[len(plan)-1].Match
	nothing[0].Patterns = append(nothing[0].Patterns, deniedOfThree)
	top = append(top, match(bench.Limit("writes-per-ip", "", "ip"), "endpoint", "POST /ord*", "ip", "10.0.0.0/8"))
	for i := range 16 {
		top = append(top, match(bench.Limit(fmt.Sprintf("exact-%d", i), "", "ip"), "endpoint", fmt.Sprintf("GET /reports/%d", i)))
	}
	for i := range 14 {
		top = append(top, match(bench.Limit(fmt.Sprintf("prefix-%d", i), "", "ip"), "endpoint", fmt.Sprintf("GET /archive/%d/*", i)))
	}
	for i := range 10 {
		top = append(top, match(bench.Limit(fmt.Sprintf("block-%d", i), "", "ip"), "ip", fmt.Sprintf("192.0.%d.0/24", 2*i)))
	}
	for i := range 5 {
		plan = append(plan, match(bench.Limit(fmt.Sprintf("robots-%d", i), "", "user"), "user", fmt.Sprintf("robot-%d-*", i)))
	}
	scarce := bench.Limit(bench.Scarce, "")
	scarce.Burst = 999_999_999
	return &quotav1.Policy{Limits: top, Plans: []*quotav1.Plan{
		{Name: "fifty", Limits: plan},
		{Name: "one", Limits: []*quotav1.Limit{bench.Limit("requests", "requests")}},
		{Name: bench.Denied, Limits: []*quotav1.Limit{bench.Limit(bench.Denied, "")}},
		{Name: bench.Scarce, Limits: []*quotav1.Limit{scarce}},
	}}
}

// meteredRules are fiftyRules with all limits of the plan feeding the ledger, so that a journal has their buckets.
func meteredRules() *quotav1.Policy {
	p := fiftyRules()
	for _, l := range p.Plans[0].Limits {
		l.Meter = l.Name
	}
	return p
}

func planOf(tenant string) string {
	switch tenant {
	case "acme":
		return "one"
	case bench.Denied, bench.Scarce:
		return tenant
	}
	return "fifty"
}
