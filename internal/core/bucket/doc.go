// Package bucket is an agent's copy of one bucket: its stock, the lease that refills it, the conversation with the store, those
// who wait, windows, slots, reservations, and its end. It is pure: no clock, no goroutine, no network; time is an argument, in
// microseconds of the caller's monotonic clock.
//
// Read cell.go first: the one atomic subtraction that admits a request, and what can be derived from it. Then bucket.go (what a
// bucket knows, and the slow path), refill.go (refill, expiry, a window's turn), renew.go (what is asked for, and when; demand.go
// has when demand fell) and apply.go (how a grant is put to use). shut.go has denials that take no mutex, retry.go when a denied
// request may come again. queue.go has those who wait; reserve.go, slots.go and edge.go reservations, slots and windows; collect.go
// what the ledger is handed.
package bucket
