package client

import (
	"maps"
	"slices"
)

// Gateway says how a door's words become attributes, as the policy has it: for
// programs that stand between a gateway of another make and this client, such as
// quota-agent.
type Gateway struct {
	Name   string
	Domain string // Envoy's rate limit domain; empty for any
	// Descriptors maps a descriptor's key, or "header:name", to an attribute's name.
	Descriptors map[string]string
	// After is descriptor keys: a descriptor with an entry of such a key tells of usage that happened already; see Client.Book.
	After []string
}

// PolicyVersion returns the version of the policy in force here; 0 while none is
// known. It costs one atomic load.
func (c *Client) PolicyVersion() int64 { return c.reg.Version() }

// Gateways returns the gateways of the policy in force here; none while it is not
// known. It is meant to be called when PolicyVersion has changed, not for each request.
func (c *Client) Gateways() []Gateway {
	var gateways []Gateway
	for _, g := range c.reg.Gateways() {
		gateways = append(gateways, Gateway{Name: g.Name, Domain: g.Domain, Descriptors: maps.Clone(g.Descriptors), After: slices.Clone(g.After)})
	}
	return gateways
}
