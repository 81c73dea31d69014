// Package load drives gateways, each a full client with its own leases and reports,
// with the requests of many tenants, and says what came of it: how many decisions, what
// they cost, how far what was admitted is from one ideal central limiter on the same
// arrivals, and whether the ledger has it to the unit.
//
// Read run.go first. A request costs the generator a few nanoseconds: who asks is drawn in
// advance (track.go), when is decided for some hundred requests at a time (gateway.go), and of
// an answer one bit is kept (record.go), from which everything is counted after the run (replay.go).
package load
