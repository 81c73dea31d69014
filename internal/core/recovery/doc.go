// Package recovery settles what is in a gateway's journal and not in the ledger. That is usage that ended lives
// left, and reports that a ledger which went back has forgotten. Nothing is settled twice, however often and
// wherever a journal is recovered.
//
// Read lives.go first, which is the journal and its lives; recover.go settles a dead host's, resend.go what was
// forgotten. settle.go sends every report, after a crash or not.
package recovery
