// Package hugepages asks the system for large pages for this process's heap.
//
// A gateway of many live buckets reads a line or two of memory for each decision, anywhere in gigabytes of it. In pages
// of 4 KiB the processor must first look up where each line is, which may take as long as the line itself. Pages of 2
// MiB are so few that it knows most of them (docs/operations.md). Systems that give large pages to all (always) need no
// such request; those that give them on request (madvise) do.
package hugepages

import (
	"context"
	"time"
)

// Follow asks for large pages for the heap as it is, and as it grows, until ctx ends. Heap of the last second may be in
// small ones. Where the system has none, or gives none, it does nothing.
func Follow(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for until := uint64(0); ; {
		var ok bool
		if until, ok = advise(until); !ok {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
