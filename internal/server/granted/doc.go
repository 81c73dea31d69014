// Package granted has what this server granted to agents, and holds what they settle against it.
//
// The tally notes grants, and what agents say of their leases, and writes both to the ledger every ten seconds, for
// reconciliation (tally.go). Overdrafts add the same up in memory: a report that does not fit what was granted is
// judged by the ledger, which has what other servers granted, and what still does not fit after half a minute goes to
// quarantine (overdrawn.go has what is known of an agent, claim.go how a report is held against it).
//
// What a server that dies has noted since it last wrote is missing, which reconciliation says. Usage that is in order
// fits all the same: the margin is a limit's rate for half a minute. Read tally.go first.
package granted
