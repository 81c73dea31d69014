// Package client decides requests against the quotas of a policy, in process and
// without a call per request: it is the SDK that gateways link.
//
// A Client holds local copies of the buckets in use, refilled by leases from a
// quota server, and settles what it admitted into the server's ledger. Allow
// decides by attributes; a Limiter is a handle for the hottest paths, resolved once.
//
// Read client.go first, then allow.go. What decides is internal/core/agent; the goroutine that owns
// the rest is internal/core/session. Without a journal, a crash loses at
// most the usage admitted since the last report, one report interval's worth. So does
// a signal that nobody catches: a program has to call Close before it ends.
//
// Package httpquota beside it is net/http middleware, grpcquota has gRPC interceptors, and agentclient asks a
// quota-agent for each decision instead.
package client
