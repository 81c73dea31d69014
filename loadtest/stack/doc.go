// Package stack is what a load runs against when no server is given: real engines as
// processes of this machine (a Redis Cluster of six nodes and a Postgres), or the
// embedded ones, with a quota server on top, and the two calls to it that a load needs:
// apply a policy, read the ledger.
//
// Read stack.go first. What is started ends with this process.
package stack
