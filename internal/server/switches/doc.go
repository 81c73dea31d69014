// Package switches holds the newest switches that any server was told of: the kill switch, and the tenants that are
// denied.
//
// A switch that is set here is told to this server's agents at once, whatever is away. It reaches the policy store and
// the board as soon as each answers. Of two copies the later one holds. If both stores are away when this server ends,
// what only it knew is lost. A copy on the board is believed only with a server's signature (posted.go).
//
// Read switches.go first.
package switches
