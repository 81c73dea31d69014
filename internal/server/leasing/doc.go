// Package leasing answers agents' renewals, and tells them what changes.
//
// A renewal is answered by the lease store, in one step for all buckets of a call (renew.go), by the rule that is in
// force (view) and for the buckets that the key is for (narrow.go). Where the store is not sure of a window, the ledger
// is asked what was used of it (figures.go), and before an agent can have usage of a tenant the ledger is told so
// (holders.go). It goes on without the ledger: both are tried again. The joiner makes few batches of many calls for a
// store across the network.
//
// It keeps no state that another server would miss. Read renew.go first, then bucket.go; watch.go for streams.
package leasing
