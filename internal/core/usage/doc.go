// Package usage is what an agent tells the ledger: rows of what its buckets admitted and denied, and reports of these,
// kept until acknowledged. A journal has both, so that a crash can be recovered.
//
// reserved.go records reservations, of which a crash bills what was used, and left.go reads them again.
//
// It is pure but for the disk behind Durable. usage.go gathers rows, outbox.go freezes them into numbered reports,
// journal.go writes down what a crash must not take, and recovery.go reads it again.
package usage
