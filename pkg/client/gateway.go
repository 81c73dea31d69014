package client

import (
	"maps"
	"slices"
)

// Gateway says how a gateway's words become attributes, by the policy. It is for programs between a gateway of another
// make and this client, such as quota-agent.
type Gateway struct {
	Name        string
	Domain      string            // Envoy's rate limit domain; empty for any
	Descriptors map[string]string // from a descriptor's key, or "header:name", to an attribute's name
	After       []string          // keys of descriptors that tell of usage which happened already: see Client.Book
	// Hits is the cost that a descriptor's hits are units of, by a key of an entry that it has; "" for any descriptor.
	// Without either they are requests.
	Hits map[string]string
}

// PolicyVersion returns the version of the policy in force here; 0 while none is known. It is one atomic load.
func (c *Client) PolicyVersion() int64 { return c.reg.Version() }

// Gateways returns the gateways of the policy in force here; none while it is not known. It copies: call it when
// PolicyVersion has changed, not for each request.
func (c *Client) Gateways() []Gateway {
	var gateways []Gateway
	for _, g := range c.reg.Gateways() {
		g.Descriptors, g.After, g.Hits = maps.Clone(g.Descriptors), slices.Clone(g.After), maps.Clone(g.Hits)
		gateways = append(gateways, Gateway(g))
	}
	return gateways
}
