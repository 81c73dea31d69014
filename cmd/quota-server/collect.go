package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// room is how many bytes are allocated between two collections, where the live heap is smaller. A server's live
	// heap is some tens of megabytes; renewals allocate as much again several times a second. With Go's own rule,
	// collecting was more than a tenth of its work.
	room = 256 << 20
	// mostPercent bounds room as a percentage of a small heap.
	mostPercent = 1000
	// roomEvery is how often the heap is looked at.
	roomEvery = time.Second
)

// collect lets the heap grow by room, or to twice the live heap if that is more, until ctx ends. GOGC, if set, applies
// instead.
func collect(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	for was := 0; ; {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		if p := percent(live[0].Value.Uint64()); p < was-was/8 || p > was+was/8 { // setting it stops the world for a moment
			debug.SetGCPercent(p)
			was = p
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// percent is the percentage by which a heap with so many live bytes may grow.
func percent(live uint64) int {
	return int(min(max(room*100/max(live, 1), 100), mostPercent))
}
