// Package sim runs agents and a lease store in one process under virtual time. They are the code that runs in
// production (internal/core/agent, bucket, renewal and lease). A network delays, loses and repeats, from a seed.
// Beside it one ideal central limiter is fed the same arrivals. What comes out is the error of leasing, every window
// above the bound, and the renewals it took.
//
// Read scenarios.go for what is simulated and promise.go for what is demanded. world.go has the events. gateway.go
// decides requests and loop.go carries calls, as pkg/client and internal/core/session do; store.go stands for the
// server. ideal.go has the limiters compared with, bound.go holds every window to the bound, measure.go adds up.
// report.go, frontier.go and chart.go write the report.
package sim
