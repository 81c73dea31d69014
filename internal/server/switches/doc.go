// Package switches holds the newest switches that any server was told of: the kill switch, and the tenants that are
// denied.
//
// It promises that a switch that is set here is told to this server's agents at once, whatever is away, and that it
// reaches the policy store and the board as soon as each answers. Of two copies the one that was set later holds. What
// only this server knew is lost when it ends while both are away. A copy on the board is believed only with a server's
// signature (posted.go).
//
// Read switches.go first.
package switches
