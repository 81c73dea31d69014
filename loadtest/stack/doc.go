// Package stack is what a load runs against when no server is given. It starts a quota server over real engines, as
// processes of this machine: a Redis Cluster of six nodes and a Postgres. It may use the embedded engines instead. It
// has the two calls to the server that a load needs: apply a policy, read the ledger.
//
// Read stack.go first. Everything that it starts ends with this process.
package stack
