// Package client decides requests against the quotas of a policy, in process and without a call per request. It is the
// SDK that gateways link.
//
// A Client has local copies of the buckets in use, refilled by leases from a quota server. It settles the units that it
// admitted into the server's ledger. Allow decides by attributes. A Limiter is a handle for the hottest paths, resolved
// once.
//
// A program has to call Close before it ends. Without a journal, a crash loses the usage since the last report, and so
// does a signal that nobody catches.
//
// Beside it, package httpquota is net/http middleware and grpcquota has gRPC interceptors. Package agentclient asks a
// quota-agent for each decision instead.
//
// Read client.go first, then allow.go and ask.go. Buckets are found by internal/core/agent; the goroutine that renews
// and settles them is internal/core/session.
package client
