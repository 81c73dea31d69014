// Package pgledger is the ledger of production: Postgres 14 or newer, shared by any
// number of stateless servers, each of which connects as quota_app, a role that owns
// nothing and cannot change a fact. The schema is made before by package migrations,
// with the owner's URL.
//
// A report is acknowledged when its transaction has committed: what Postgres's
// synchronous_commit promises is what the ledger promises. Open connects to
// nothing: a database that is away at the start, or goes away, is an error of each
// call that wraps ledger.ErrUnavailable, and the reason that Ping gives.
//
// Read store.go first, then intake.go, fold.go and usage.go.
package pgledger
