//go:build race

package sim

// Under the race detector the simulation, which has one goroutine, is only sampled: scripts/test runs it without.
func init() { sampled = true }
