// Package unraced marks tests in which the race detector has nothing to find, and that it makes ten times
// slower. In some of them one goroutine does everything. Others play hundreds of histories that differ in their
// decisions, not in which goroutines meet. scripts/test runs the tests of every package that imports it once
// more, without the detector.
package unraced

import "testing"

// Only leaves a test to the run without the race detector.
func Only(t testing.TB) {
	t.Helper()
	if watched {
		t.Skip("the race detector has nothing to find in it: scripts/test runs it without")
	}
}

// Some is how many of n histories are run: all, or a fourth under the race detector.
func Some(n int) int {
	if watched {
		return (n + 3) / 4
	}
	return n
}
