// Package load drives gateways, each a full client with its own leases and reports, with the requests of many tenants.
// It reports how many decisions were made and what they cost. It compares the admitted units with one ideal central
// limiter on the same arrivals, and checks that the ledger has them to the unit.
//
// Read run.go first. A request costs the generator a few nanoseconds. Its tenant is drawn in advance (track.go), and
// its time is decided for some hundred requests at once (gateway.go). Of an answer one bit is kept (record.go);
// everything is counted from that after the run (replay.go).
package load
