// Package sqlbooks is ledger.Books on both engines: what operators do with a ledger,
// in SQL that Postgres and SQLite share but for the few words in dialect.go. What it
// changes, it changes as facts that are written with their audit row, in one
// transaction; a commit that failed left nothing.
//
// It uses connections of its own, for a verification may take long, and intake must
// not wait for one. Read books.go first.
package sqlbooks
