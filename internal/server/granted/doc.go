// Package granted knows what this server granted to agents, and holds what they settle against it.
//
// The tally notes grants and what agents say of their leases, and writes both to the ledger every ten seconds, for
// reconciliation (tally.go). Overdrafts add the same up in memory (overdrawn.go for what is known of an agent, claim.go
// for how a report is checked). A report above the grants known here is checked against the ledger, which has what
// other servers granted. Usage that still does not fit after half a minute goes to quarantine.
//
// A server that dies loses what it noted since its last write; reconciliation says so. Usage that is in order fits all
// the same: the margin is a limit's rate for half a minute. Read tally.go first.
package granted
