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
	turn   = 10 * time.Millisecond
	warmUp = 300 * time.Millisecond
)

// together runs f n times, spread over so many goroutines.
func together(cores, n int, f func(worker, n int)) {
	if cores == 1 {
		f(0, n)
		return
	}
	var wg sync.WaitGroup
	for g := range cores {
		wg.Go(func() { f(g, n/cores) })
	}
	wg.Wait()
}

// figure is what was measured of a candidate.
type figure struct {
	ns     float64 // that pass for one decision, whatever the number of cores: the median of the turns
	allocs float64
}

// measure lets the candidates take short turns, so that what else the machine does meets
// all of them, and takes medians. The garbage collector stays off meanwhile, which spares those
// who allocate.
func measure(cores, rounds int, all []candidate) []figure {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	n := make([]int, len(all))
	for i, c := range all { // warms up, and finds how many make a turn
		size := 1024
		for start := time.Now(); time.Since(start) < warmUp; {
			begin := time.Now()
			together(cores, size, c.do)
			took := max(time.Since(begin), time.Microsecond)
			size = max(min(int(float64(size)*float64(turn)/float64(took)), 4*size), 256)
		}
		n[i] = size
	}
	took := make([][]float64, len(all))
	figures := make([]figure, len(all))
	for i := range figures {
		figures[i].allocs = math.Inf(1)
	}
	var before, after runtime.MemStats
	for r := range rounds {
		for i, c := range all {
			count := r%4 == 0 // reading the counts stops the world
			if count {
				runtime.ReadMemStats(&before)
			}
			start := time.Now()
			together(cores, n[i], c.do)
			took[i] = append(took[i], float64(time.Since(start).Nanoseconds())/float64(n[i]))
			if count {
				// What the client's loop allocates beside it can only add to the count, so the least
				// of the turns is the decision's own.
				runtime.ReadMemStats(&after)
				a := float64(after.Mallocs-before.Mallocs) / float64(n[i])
				figures[i].allocs = min(figures[i].allocs, a)
			}
		}
	}
	for i := range took {
		slices.Sort(took[i])
		figures[i].ns = took[i][len(took[i])/2]
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
