// Package session is the life of a gateway. One goroutine renews leases, follows the policy, reports usage and settles
// it, beside the goroutines that decide.
//
// It owns all mutable state that is not a bucket's. It never waits for the network: calls run beside it and send it
// their results. Without a journal a crash loses at most the usage admitted since the last report.
//
// Read session.go first, which is what deciders call, then loop.go. What is renewed and when is
// internal/core/renewal's; calls.go carries its calls. usage.go collects and reports usage, settle.go settles it;
// end.go has the end.
package session
