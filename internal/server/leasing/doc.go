// Package leasing answers agents' renewals, and tells them what changes.
//
// The lease store answers all renewals of a call in one step for each bucket (renew.go). The rule comes from the policy
// in force (view), and renewals that the key does not cover are refused (narrow.go). Where the store is not sure of a
// window, the ledger is asked what was used in it (figures.go). The ledger is told soon after the answer that
// an agent may use a tenant (holders.go). Without the ledger leasing goes on, and tries both again. The joiner makes few
// batches of many calls for a store across the network.
//
// It keeps no state that another server would miss. Read renew.go first, then bucket.go; watch.go for streams.
package leasing
