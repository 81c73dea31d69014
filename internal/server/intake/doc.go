// Package intake takes agents' reports into the ledger: exactly once, and none that cannot be judged yet.
//
// A receipt is sent after the ledger's commit alone. Rows that the key is not for, that are overdrawn, or that name
// what there is not, go to quarantine while the rest of their report settles. An agent is told which ledger it is
// (standing.go), so that one that was restored is found out, and agents look whether it has what was acknowledged.
//
// Read settle.go first.
package intake
