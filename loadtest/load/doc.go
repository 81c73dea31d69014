// Package load drives many gateways, each a full client of its own, and holds the
// ledger to what it counted itself. The count of admitted units is taken from the
// answers, outside the SDK: it is the witness that the ledger is compared with.
//
// Read run.go for the run, then result.go for what is told of it.
package load
