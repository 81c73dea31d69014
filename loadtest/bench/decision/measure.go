package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// A candidate does n decisions, on one of several goroutines.
type candidate struct {
	name string
	do   func(worker, n int)
}

const (
	turn   = 5 * time.Millisecond
	warmUp = 150 * time.Millisecond
)

// together runs f n times, spread over so many threads. It returns the processor time of the thread that took longest.
// Other work of the machine is not in it, except for what that does to the thread's caches.
func together(cores, n int, f func(worker, n int)) time.Duration {
	took := make([]time.Duration, cores)
	var wg sync.WaitGroup
	for g := range cores {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			start := threadTime()
			f(g, n/cores)
			took[g] = threadTime() - start
		})
	}
	wg.Wait()
	return slices.Max(took)
}

// allocated returns how many objects a turn allocates.
func allocated(cores, n int, f func(worker, n int)) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	together(cores, n, f)
	runtime.ReadMemStats(&after)
	return int64(after.Mallocs - before.Mallocs)
}

// figure is what was measured of a candidate.
type figure struct {
	ns     float64 // for one decision, whatever the number of cores: the lower quartile of the turns
	allocs float64
}

// measure lets the candidates take short turns, and takes lower quartiles. So other work of the machine meets all of
// them. The garbage collector stays off meanwhile, which spares candidates that allocate.
func measure(cores, rounds int, all []candidate) []figure {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	n := make([]int, len(all))
	for i, c := range all { // warms up, and finds how many make a turn
		size := 1024
		for start := time.Now(); time.Since(start) < warmUp; {
			took := max(together(cores, size, c.do), time.Microsecond)
			size = max(min(int(float64(size)*float64(turn)/float64(took)), 4*size), 256)
		}
		n[i] = size &^ (8*cores - 1) // atomicAdd goes eight at a time
	}
	took := make([][]float64, len(all))
	figures := make([]figure, len(all))
	for i := range figures {
		figures[i].allocs = math.Inf(1)
	}
	own := allocated(cores, 1, func(int, int) {})
	for range rounds {
		own = min(own, allocated(cores, 1, func(int, int) {}))
	}
	for r := range rounds {
		for i, c := range all {
			if r%2 == 0 { // reading the counts stops the world
				// The client's loop allocates beside the decision and can only add to the count. So the least of the
				// turns is that of the decision and of the turn itself.
				a := float64(max(allocated(cores, n[i], c.do)-own, 0)) / float64(n[i])
				figures[i].allocs = min(figures[i].allocs, a)
			}
			took[i] = append(took[i], float64(together(cores, n[i], c.do))/float64(n[i]))
		}
	}
	for i := range took {
		slices.Sort(took[i])
		figures[i].ns = took[i][len(took[i])/4]
		if figures[i].allocs < 0.001 {
			figures[i].allocs = 0
		}
	}
	return figures
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-decision:", err)
		os.Exit(1)
	}
}
