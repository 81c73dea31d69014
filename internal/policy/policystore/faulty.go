package policystore

import (
	"fmt"
	"maps"
	"slices"
)

// FaultyTenants is an error of some tenants alone, by their ids. What is stored of them cannot be made out with the
// policy in force. A server older than the stored data sees this.
type FaultyTenants map[string]error

// Error says how many tenants are faulty, and why the first cannot be made out.
func (f FaultyTenants) Error() string {
	ids := slices.Sorted(maps.Keys(f))
	if len(ids) == 1 {
		return f[ids[0]].Error()
	}
	return fmt.Sprintf("%d tenants cannot be made out; the first: %v", len(ids), f[ids[0]])
}

// Unwrap returns the error of each tenant.
func (f FaultyTenants) Unwrap() []error { return slices.Collect(maps.Values(f)) }
