package ledger

import (
	"slices"
	"time"
)

// NotedWithin is how long a server may take to note a holder after it answered:
//
//	granted at T, noted by T + NotedWithin: at no time is usage called complete past T without the epoch's.
//
// For usage is never called complete through a later time than now less NotedWithin: before the note that is T at most.
// From the note on, an epoch without a report holds it back to the first note less NotedWithin, which is T at most too.
// So no request waits for the ledger. A note that fails after two seconds has the time to come again.
//
// A server that is killed may leave holders unnoted that it answered just before. They are noted by their next renewal,
// or by their next report ten seconds later.
const NotedWithin = 5 * time.Second

// A Hold names tenants that an epoch may have usage of, since NotedWithin ago. A server told its agent of them, or
// granted it their leases. The ledger hears of usage with the epoch's reports, the first of which may be ten seconds
// away. Until then their usage is not complete past the lease. The empty tenant stands for usage that has none.
type Hold struct {
	Epoch   Epoch
	Tenants []string
	Key     string // the id of the key that the agent asked with; empty where none was asked for
}

// Sorted are the tenants, each once, in the order in which engines write them.
func (h *Hold) Sorted() []string {
	tenants := slices.Clone(h.Tenants)
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// SortHolds puts notes into the order in which engines write them.
func SortHolds(holds []Hold) {
	slices.SortStableFunc(holds, func(a, b Hold) int { return a.Epoch.compare(b.Epoch) })
}
