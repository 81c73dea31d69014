// Package usage is what an agent tells the ledger: rows of what its buckets admitted and denied, reports of these that are kept
// until they are acknowledged, and a journal of both, out of which a crash is recovered.
//
// It is pure but for the disk behind Durable. usage.go gathers rows, outbox.go freezes them into numbered reports, journal.go
// writes down what a crash must not take, and recovery.go reads it again.
package usage
