package bench

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// Turns are short and many, so that what else the machine does meets few of
// them, and all candidates alike; the median counts.
const (
	rounds = 101
	turn   = 2 * time.Millisecond
)

// measure returns each candidate's median nanoseconds for one decision (the time
// that passes, whatever the number of cores), taking turns so that what else the machine
// does meets them all.
func measure(tb testing.TB, cores int, all ...candidate) []float64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	work := make([]func(int), len(all))
	for i, c := range all {
		work[i] = c.make(tb)
	}
	runtime.GC()
	took := make([][]float64, len(all))
	n := make([]int, len(all))
	for i, f := range work { // warms up, and finds how many make a turn
		for n[i] = 1000; ; n[i] *= 2 {
			start := time.Now()
			together(cores, n[i], f)
			if time.Since(start) > turn {
				break
			}
		}
	}
	for range rounds {
		for i, f := range work {
			start := time.Now()
			together(cores, n[i], f)
			took[i] = append(took[i], float64(time.Since(start).Nanoseconds())/float64(n[i]))
		}
	}
	medians := make([]float64, len(all))
	for i := range took {
		slices.Sort(took[i])
		medians[i] = took[i][len(took[i])/2]
	}
	return medians
}

func allocations(f func(int)) float64 {
	var before, after runtime.MemStats
	const n = 200_000
	runtime.ReadMemStats(&before)
	f(n)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / n
}

// A resolved handle costs at most 1.5 times one atomic addition, and nothing on the heap.
func TestHandleBound(t *testing.T) {
	for _, cores := range []int{1, 2} {
		m := measure(t, cores, atomicAdd, handle, timeRate)
		ratio := m[1] / m[0]
		t.Logf("cores=%d atomic.Int64.Add %.1f ns, Limiter.Allow %.1f ns (%.2f ×), x/time/rate %.1f ns", cores, m[0], m[1], ratio, m[2])
		if ratio > 1.5 {
			t.Errorf("on %d cores a handle costs %.2f atomic additions, want 1.5 at most", cores, ratio)
		}
	}
	if a := allocations(handle.make(t)); a > 0.001 {
		t.Errorf("a handle allocates %.4f times a decision, want 0", a)
	}
}

// Among 100,000 live buckets a decision by attributes is faster than x/time/rate
// behind a sync.Map, and allocates nothing.
func TestAttributesBound(t *testing.T) {
	for _, c := range []struct {
		candidate
		kind string
	}{{byTenant, "tenant"}, {byUser, "user"}} {
		for _, cores := range []int{1, 2} {
			m := measure(t, cores, c.candidate, syncMap(c.kind), goMap(c.kind))
			t.Logf("cores=%d %s %.0f ns, x/time/rate behind sync.Map %.0f ns, map read %.0f ns (%.2f ×)", cores, c.name, m[0], m[1], m[2], m[0]/m[2])
			if m[0] >= m[1] {
				t.Errorf("%s on %d cores: %.0f ns, x/time/rate behind sync.Map %.0f; want less", c.name, cores, m[0], m[1])
			}
		}
		if a := allocations(c.make(t)); a > 0.05 { // the loop beside it allocates a little
			t.Errorf("%s allocates %.4f times a decision, want 0", c.name, a)
		}
	}
}
