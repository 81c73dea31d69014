// Package ledger settles usage exactly once. Agents send reports; intake stores
// each durably and moves a frontier by compare-and-set, so that a report settles
// once and a loss is a gap; folding merges reports over all agents into the
// entries of a block and moves the roll-ups; reading is roll-ups plus what is
// not yet folded. Standard library only: the engines are pgledger and
// sqliteledger, held to one suite in ledgertest.
//
// Nothing acknowledged is lost: only a committed report is acknowledged. What an
// agent admitted and has not reported when it dies is lost, and its epoch's Through
// says from when on.
//
// Read report.go first, then store.go for the contract. A report goes through
// settle.go (calls are joined), intake.go (what becomes of it), seal.go (a block is
// made of many) and fold.go (what a block is) to usage.go; complete.go says how far an answer can be trusted. All of
// that is pure but for settle.go and folder.go: engines only read and write.
package ledger
