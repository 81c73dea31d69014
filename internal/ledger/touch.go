package ledger

import "unique"

// Touch notes that an epoch settled usage of a tenant. Gateways times tenants of them
// are remembered: two words each, and neither keeps the report alive that it was read in.
type Touch struct {
	epoch  unique.Handle[Epoch]
	tenant unique.Handle[string]
}

// NewTouch returns the note of a tenant.
func NewTouch(e Epoch, tenant string) Touch { return Touch{unique.Make(e), unique.Make(tenant)} }

// Epoch is who touched.
func (t Touch) Epoch() Epoch { return t.epoch.Value() }

// Tenant is who was touched.
func (t Touch) Tenant() string { return t.tenant.Value() }
