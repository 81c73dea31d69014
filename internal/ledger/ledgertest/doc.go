// Package ledgertest is the contract of ledger.Store in code. Run holds an engine to it. Scenarios in testdata
// read as the specification. Other tests demand that settlement happens exactly once, in whatever way a report
// arrives. The rest are random histories, and the results of folds.
//
// Checks return errors instead of failing. So a control can run the same check against a ledger whose guard was
// removed, and demand that it fails.
package ledgertest
