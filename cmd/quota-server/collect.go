package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// room is how much is allocated between two collections where the heap that lives is less, in bytes. A server's is some tens of
	// megabytes, of which renewals make as much again several times a second: with Go's own rule, collecting was more than a tenth of its work.
	room = 256 << 20
	// mostPercent bounds what the room is in parts of a small heap.
	mostPercent = 1000
	// roomEvery is how often the heap is looked at.
	roomEvery = time.Second
)

// collect has the heap grow by the room, or to twice what lives where that is more, until ctx ends. Who sets GOGC has that instead.
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

// percent is by how much a heap of which so many bytes live may grow.
func percent(live uint64) int {
	return int(min(max(room*100/max(live, 1), 100), mostPercent))
}
