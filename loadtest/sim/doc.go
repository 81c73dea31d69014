// Package sim runs agents and a lease store in one process under virtual time,
// over the same code that runs in production (internal/core/bucket, internal/core/lease),
// with a network that delays, loses and repeats from a seed. Beside it one ideal
// central limiter is fed the same arrivals. What comes out is the error of
// leasing, every window above the bound, and the renewals it took.
//
// Read scenarios.go for what is simulated and promise.go for what is demanded. world.go
// has the events, gateway.go and loop.go stand for internal/core/session, store.go for the
// server; ideal.go are the limiters compared with, bound.go holds every window to
// the bound, and measure.go adds up. report.go, frontier.go and chart.go write the report.
package sim
