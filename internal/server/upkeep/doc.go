// Package upkeep is what a server does for the ledger without being asked: folds are counted, what is still to be done
// is shown, and epochs whose key was revoked hold usage back no more. Any number of servers may do it.
//
// It decides nothing about usage, and imports no other room but rpc. Read folds.go first.
package upkeep
