package ledger

import "unique"

// Touch notes that an epoch settled usage of a tenant. It is two words, and keeps no report in memory.
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

// Notes remembers which touches the engine is known to hold, so that only new ones are written. There are as
// many as gateways times their tenants, kept by epoch. So a report, which has one epoch, looks its tenants up
// in a small map. When full, it forgets any epochs. Not safe for concurrent use.
type Notes struct {
	of     map[Epoch]Noted
	n, max int
}

// Noted is the tenants that are noted of one epoch. The handles keep each name once, whoever
// touched it.
type Noted map[string]unique.Handle[string]

// Has reports whether the tenant is noted.
func (n Noted) Has(tenant string) bool { _, ok := n[tenant]; return ok }

// NewNotes returns an empty set of at most max touches.
func NewNotes(max int) *Notes { return &Notes{of: map[Epoch]Noted{}, max: max} }

// Of returns what is noted of an epoch, until the next change of n.
func (n *Notes) Of(e Epoch) Noted { return n.of[e] }

// Add remembers t.
func (n *Notes) Add(t Touch) {
	epoch, tenant := t.Epoch(), t.Tenant()
	if n.of[epoch].Has(tenant) {
		return
	}
	for e := range n.of {
		if n.n < n.max {
			break
		}
		n.Forget(e)
	}
	of := n.of[epoch]
	if of == nil {
		of = Noted{}
		n.of[epoch] = of
	}
	of[tenant] = t.tenant
	n.n++
}

// Forget forgets an epoch.
func (n *Notes) Forget(e Epoch) {
	n.n -= len(n.of[e])
	delete(n.of, e)
}
