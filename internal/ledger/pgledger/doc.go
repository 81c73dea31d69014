// Package pgledger is the ledger of production: Postgres 14 or newer, shared by any number of stateless
// servers. Each connects as quota_app, a role that owns nothing and cannot change a fact. Package migrations
// makes the schema before, with the owner's URL.
//
// A report is acknowledged when its transaction has committed: the ledger promises what Postgres's
// synchronous_commit promises. Open connects to nothing. While a database is away, each call returns an error
// that wraps ledger.ErrUnavailable, and Ping gives the reason.
//
// Read store.go first, then intake.go, fold.go and usage.go.
package pgledger
