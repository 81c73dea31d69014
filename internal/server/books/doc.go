// Package books is what operators do with the ledger. They verify and rebuild it, trace reports and entries, correct
// usage, bring usage in, and release or discard what is in quarantine.
//
// A correction is a new entry, made once however often it is sent (sentbefore.go). Rows that a person wrote are checked
// against the policy and the tenant: no statement would show a row with an unknown name (bring.go). One call at a time
// reads the whole ledger.
//
// Read ledger.go first, then correct.go.
package books
