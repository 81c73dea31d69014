// Package intake takes agents' reports into the ledger: exactly once, and none that cannot be judged yet.
//
// A receipt is sent only after the ledger's commit. Rows that the key does not cover go to quarantine, and so do
// overdrawn rows and rows that name something unknown. The rest of their report settles. Agents are told which ledger
// this is (standing.go). When it was restored from a backup, they check whether it has what was acknowledged.
//
// Read settle.go first.
package intake
