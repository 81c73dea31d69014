// Package agent is the part of the product that sits in a gateway and decides: an
// agent's copy of each bucket, refilled by leases, counted for the ledger. It has
// no clock, no goroutine and no network: time is an argument (microseconds of the
// caller's monotonic clock), and whoever owns the agent — pkg/client in production,
// loadtest/sim under virtual time — carries renewals to a server and grants back.
//
// Read cell.go first: the one atomic subtraction that admits a request, and what
// can be derived from it. Then bucket.go (the slow path: refill, expiry, denial)
// and renew.go (what is asked for, and how a grant is put to use). Around buckets:
// registry.go and resolve.go find those that hold a request, memo.go knows requests
// that come again, and lodge.go has the tokens of most lie there; usage.go and outbox.go
// turn what was admitted into rows and reports.
package agent
