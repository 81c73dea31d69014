// Package sqlbooks is ledger.Books on both engines: what operators do with a ledger. Postgres and SQLite share
// its SQL, except the few words in dialect.go. Each change is a fact, written with its audit row in one
// transaction; a commit that failed left nothing.
//
// It uses connections of its own, for a verification may take long, and intake must not wait for one. Read
// books.go first.
package sqlbooks
