// Package ledger settles usage exactly once. Agents send reports; intake stores
// each durably and moves a frontier by compare-and-set, so that a report settles
// once and a loss is a gap; folding merges reports over all agents into the
// entries of a block and moves the roll-ups; reading is roll-ups plus what is
// not yet folded. Standard library only: the engines are pgledger and
// sqliteledger, held to one suite in ledgertest.
//
// Nothing acknowledged is lost: only a committed report is acknowledged. Read
// report.go first, then store.go for the contract.
package ledger
