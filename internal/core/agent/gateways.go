package agent

import "github.com/f4ee788f/quota/internal/core/limit"

// Gateways returns the gateways of the policy in force; nil while none is known.
// They must not be changed.
func (r *Registry) Gateways() []limit.Gateway {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rules == nil {
		return nil
	}
	return r.rules.Policy.Gateways
}
