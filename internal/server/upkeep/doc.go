// Package upkeep is what a server does for the ledger without being asked. It counts folds, shows how much is still to
// be folded, and releases usage held back by epochs whose key was revoked. Any number of servers may do it.
//
// It decides nothing about usage, and imports no other room but rpc. Read folds.go first.
package upkeep
