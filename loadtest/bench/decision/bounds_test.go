package main

import (
	"testing"

	"github.com/f4ee788f/quota/internal/hugepages"
	"github.com/f4ee788f/quota/loadtest/bench"
)

// missed are the rows that do not keep their bounds, and what they are held to until they do: a table of a hundred thousand requests
// is read from memory, and a denial reads the bucket besides. docs/performance.md has the figures.
var missed = map[string]bound{
	"one limit": {floors: 5, peers: 2},
	"denied":    {peers: 9},
}

// Decisions are within the bounds that main.go says, but for those that are known to be missed. What else the machine does may cost one
// side more than the other; a real loss shows every time.
func TestDecisionBounds(t *testing.T) {
	const buckets = 100_000
	go hugepages.Follow(t.Context()) // as quota-agent does; of all candidates alike
	for _, b := range []struct {
		what     string
		limits   int
		endpoint string
		allowed  bool
		bound    bound
	}{
		{"one limit", 1, oneLimit, true, ofKeyed},
		{"three limits", 3, threeLimits, true, ofKeyed},
		{"denied", 1, deniedPath, false, ofDenied},
	} {
		c, stop, err := bench.Open(fiftyRules(), planOf)
		if err != nil {
			t.Fatal(err)
		}
		q := newRequests(buckets, false, false)
		fill(c, q, b.endpoint, b.allowed)
		all := []candidate{ours(c, q, b.endpoint, b.allowed), goMap(q, b.limits), loop(q)}
		for _, d := range doors(b.allowed) {
			all = append(all, behind(d, q, b.limits, b.allowed))
		}
		const tries = 3
		var broken, worse []string
		for range tries {
			f := measure(1, 21, all)
			for i := range f {
				if i != 2 {
					f[i].ns -= f[2].ns
				}
			}
			t.Logf("%s: %.1f ns, %.2f map reads, %.3f allocations", b.what, f[0].ns, f[0].ns/f[1].ns, f[0].allocs)
			within := b.bound
			within.floors, within.peers = 1.15*within.floors, 1.15*within.peers // a figure so near its bound is left
			broken, worse = faults(b.what, within, all, true, f), nil
			if len(broken) > 0 {
				worse = faults(b.what, missed[b.what], all, true, f)
			}
			if _, known := missed[b.what]; len(broken) == 0 || known && len(worse) == 0 {
				break
			}
		}
		switch _, known := missed[b.what]; {
		case len(broken) == 0:
		case !known:
			t.Errorf("in %d tries never within: %q", tries, broken)
		case len(worse) > 0:
			t.Errorf("worse than what is known to be missed: %q", worse)
		default:
			t.Logf("MISSED, as is known: %q", broken)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// A request that is no other's like, because it has an id of its own, does not allocate either where it meets one limit. Where
// it meets several, what the decision tells of them is an object.
func TestRequestsAnewHardlyAllocate(t *testing.T) {
	for limits, endpoint := range map[int]string{1: oneLimit, 3: threeLimits} {
		c, stop, err := bench.Open(fiftyRules(), planOf)
		if err != nil {
			t.Fatal(err)
		}
		q := newRequests(1_000, false, false)
		fill(c, q, endpoint, true)
		most := 0.1
		if limits > 1 {
			most = 1.1
		}
		if f := measure(1, 9, []candidate{anew(c, q, endpoint)}); f[0].allocs > most {
			t.Errorf("%d limits: a decision allocates %.3f times, want %.1f at most", limits, f[0].allocs, most)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}
