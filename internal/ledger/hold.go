package ledger

import "slices"

// A Hold is an epoch's first lease of tenants' buckets: what it admits from then on the
// ledger hears of with its reports, the first of which may be ten seconds away. Usage
// of the tenants is not complete past it before that.
type Hold struct {
	Epoch   Epoch
	Tenants []string
}

// Sorted are the tenants, each once, in the order in which engines write them. Usage that is of no
// tenant has none: all epochs hold it back.
func (h *Hold) Sorted() []string {
	tenants := slices.Clone(h.Tenants)
	slices.Sort(tenants)
	tenants = slices.Compact(tenants)
	if len(tenants) > 0 && tenants[0] == "" {
		tenants = tenants[1:]
	}
	return tenants
}
