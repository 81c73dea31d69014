package main

import (
	"testing"

	"github.com/f4ee788f/quota/loadtest/bench"
)

// Among 1,000 live buckets a request that comes again takes at most so many reads of a map for each limit, which without what
// is remembered of it it exceeds; a denial is faster than that of x/time/rate behind a sync.Map; and none allocates.
func TestKnownRequestsBound(t *testing.T) {
	rate := doors(false)[0]
	for _, b := range []struct {
		what     string
		limits   int
		endpoint string
		allowed  bool
		most     float64 // map reads
	}{
		{"one limit", 1, oneLimit, true, 2.5},
		{"three limits", 3, threeLimits, true, 2},
		{"denied", 1, deniedPath, false, 6},
	} {
		c, stop, err := bench.Open(fiftyRules(), planOf)
		if err != nil {
			t.Fatal(err)
		}
		q := newRequests(1_000, false, false)
		fill(c, q, b.endpoint, b.allowed)
		all := []candidate{ours(c, q, b.endpoint, b.allowed), goMap(q, b.limits), loop(q)}
		if !b.allowed {
			all = append(all, behind(rate, q, 1, false))
		}
		// What else the machine does may cost one side more than the other; a real loss shows every time.
		const tries = 3
		var within bool
		for try := 0; try < tries && !within; try++ {
			f := measure(1, 41, all)
			took, floor := f[0].ns-f[2].ns, f[1].ns-f[2].ns
			within = took <= b.most*floor && f[0].allocs == 0
			t.Logf("%s: %.1f ns, %.2f map reads, %.3f allocations", b.what, took, took/floor, f[0].allocs)
			if !b.allowed {
				peer := f[3].ns - f[2].ns
				within = within && took < peer
				t.Logf("%s: %s takes %.2f times that", b.what, rate.name, peer/took)
			}
		}
		if !within {
			t.Errorf("%s: in %d tries never within %.1f map reads, without allocations, and faster than a peer", b.what, tries, b.most)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// A request that is no other's like, because it has an id of its own, does not allocate either, however many limits it meets.
func TestRequestsAnewDoNotAllocate(t *testing.T) {
	for limits, endpoint := range map[int]string{1: oneLimit, 3: threeLimits} {
		c, stop, err := bench.Open(fiftyRules(), planOf)
		if err != nil {
			t.Fatal(err)
		}
		q := newRequests(1_000, false, false)
		fill(c, q, endpoint, true)
		if f := measure(1, 9, []candidate{anew(c, q, endpoint)}); f[0].allocs > 0.1 {
			t.Errorf("%d limits: a decision allocates %.3f times, want 0", limits, f[0].allocs)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}
