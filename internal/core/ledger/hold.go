package ledger

import "slices"

// A Hold is what an epoch may have usage of from now on: tenants that a server told its agent of, or granted it leases of. The
// ledger hears of what it admits with its reports, the first of which may be ten seconds away. Usage
// of the tenants is not complete past it before that. The empty tenant stands for usage that is of none.
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
