// Package hugepages asks the system for large pages for this process's heap.
//
// A gateway of many live buckets reads a line or two of memory for each decision, anywhere in gigabytes of it. In pages of
// 4 KiB the processor has to look up first where each of them is, which may take as long as the line itself; pages of 2 MiB are
// so few that it knows where most are (docs/operations.md). Systems that give them to
// all (always) do so without this package; those that give them to who asks (madvise), with it.
package hugepages

import (
	"context"
	"time"
)

// Follow asks for large pages for the heap as it is, and as it grows until ctx ends: what came in the last second may be in small
// ones. Where the system has none, or gives none, it does nothing.
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
