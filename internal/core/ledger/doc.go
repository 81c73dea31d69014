// Package ledger settles usage exactly once. Agents send reports. Intake stores each durably and moves a
// frontier by compare-and-set, so a report settles once and a loss is a gap. Folding merges reports over all
// agents into the entries of a block, and moves the roll-ups. Reading adds what is not yet folded to the
// roll-ups. Standard library only: the engines are pgledger and sqliteledger, held to one suite in ledgertest.
//
// Nothing acknowledged is lost: only a committed report is acknowledged. When an agent dies, usage that it has
// not reported is lost. Its epoch's Through says from when on.
//
// Read report.go first, then store.go for the contract. A report goes through settle.go (calls are joined), then
// intake.go and frontier.go (it is taken once). seal.go makes a block of many, and fold.go brings that to usage.go.
// complete.go says how far an answer can be trusted. All of that is pure except settle.go and folder.go:
// engines only read and write.
package ledger
