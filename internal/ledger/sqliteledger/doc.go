// Package sqliteledger is the embedded ledger: one SQLite file, in pure Go, for one
// machine. It is in WAL mode with synchronous=FULL, so that what was acknowledged
// survives a crash of the process and of the machine. One writer at a time; calls
// that wait for it are committed together.
//
// Two processes on one file are safe, and slow: SQLite's own lock tells them apart.
// Read store.go first, then intake.go, fold.go and usage.go.
package sqliteledger
