// Package ledgertest is the contract of ledger.Store in code. Run holds an engine to
// it: scenarios in testdata that read as the specification, settlement exactly once
// under every way that a report can arrive, random histories, and what a fold makes.
//
// Checks return errors instead of failing, so that a control can run the same check
// against a ledger whose guard was removed, and demand that it fails.
package ledgertest
