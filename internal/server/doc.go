// Package server is the quota server over its engines. It wires the rooms below it, serves them by gRPC and REST, and
// starts and ends them. It is stateless, so any number of servers may share the stores. Policy and tenants are a view
// of the policy store; leases and usage belong to their stores.
//
// It goes on where it can. Without the ledger's database it renews leases from the policy in memory, and its readiness
// says what it cannot do. Agents keep what they could not settle. A server that dies loses nothing acknowledged,
// because a receipt is sent only after the ledger's commit.
//
// The rooms that answer agents are leasing and intake. They stand on view (the policy in memory), judge (which rows may
// become entries) and granted (how much an agent may settle). The rooms that answer people are admin, usage, books,
// statements and alerts. Authn says who calls and what they may. Switches holds the kill switch, rest serves HTTP,
// ready and upkeep run by themselves. No room imports this package; internal/arch says which others it may.
//
// Read server.go first: how a server starts and ends. Then wiring.go: what it is made of. Package boot opens the
// engines from a configuration; programs and tests start it.
package server
