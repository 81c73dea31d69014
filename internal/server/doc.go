// Package server is the quota server over its engines: it wires the rooms below it, serves them by gRPC and REST, and
// starts and ends them. It is stateless: policy and tenants are a view of the policy store, leases and usage belong to
// theirs, so any number of servers may share them.
//
// It goes on where it can. Without the ledger's database it renews leases from the policy in memory, and says in its
// readiness what it cannot do; agents keep what they could not settle. Nothing that was acknowledged is lost with a
// server: a receipt is sent only after the ledger's commit.
//
// The rooms: authn says who calls and what they may; leasing and intake answer agents, over view (the policy in
// memory), judge (which rows may become entries) and granted (how much an agent may settle); admin, usage, books,
// statements and alerts answer people; switches holds the kill switch, rest serves HTTP, ready and upkeep run by
// themselves. No room imports this package, and internal/arch says which others it may.
//
// Read server.go first: how a server starts and ends. Then wiring.go: what it is made of. Package boot opens the
// engines from a configuration and is what programs and tests start.
package server
