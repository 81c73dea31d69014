// Package bucket is an agent's copy of one bucket: a lease fills it with tokens, with slots, or with units of a window.
// It is pure: no clock, no goroutine, no network. Time is an argument, in microseconds of the caller's monotonic clock.
//
// An allowed decision is cell.go: one atomic subtraction, from which what was admitted is derived (stock.go). A denial
// is shut.go, without the mutex, or decide.go, with refill.go and retry.go. A renewal is due.go (when), renew.go (what
// is asked for) and apply.go (how a grant is put to use). plan.go does each of them for the owner in one call.
//
// bucket.go has the state, terms.go what a limit says, shared.go what requests share, queue.go those that wait.
// expire.go and edge.go end leases and windows, and until.go is for what is taken late. lone.go is for out of contact.
// demand.go notices that demand fell. aside.go has units beside the cell, and counts those that find no room. slots.go,
// reserve.go and refund.go take units that come back. change.go puts a changed limit into force. collect.go and account.go hand
// usage to the ledger. state.go shows the bucket to people.
package bucket
