// Package session is the life of a gateway: one goroutine that renews leases, follows the policy, reports usage and
// settles it, beside the goroutines that decide.
//
// It owns all mutable state that is not a bucket's, and never waits for the network: calls run beside it and send it what
// came back. Without a journal a crash loses at most the usage admitted since the last report.
//
// Read session.go first, which is what deciders call, then loop.go. What is renewed and when is in due.go, what comes of
// it in calls.go, and how many renewals may be under way in window.go; usage.go collects and reports usage, settle.go settles it; end.go has the end.
package session
