// Package sim runs agents and a lease store in one process under virtual time,
// over the same code that runs in production (internal/agent, internal/lease),
// with a network that delays, loses and repeats from a seed. Beside it one ideal
// central limiter is fed the same arrivals. What comes out is the error of
// leasing, every window above the bound, and the renewals it took.
//
// Read run.go for the events, scenario.go for what is simulated, measure.go for
// what is demanded.
package sim
