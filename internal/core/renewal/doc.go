// Package renewal renews a gateway's leases. It says which buckets go into a call, when it goes, how many renewals may
// be under way, and what a failed call means. It reads no clock and makes no call: time is an argument, and an Owner
// carries calls. The product's owner is internal/core/session, the simulator's is loadtest/sim.
//
// Read renewer.go, then due.go (which buckets) and call.go (what a call carries, and its answers). contact.go has
// calls that fail, window.go how many renewals at a time, strain.go how long leases should last.
package renewal
