// Package server is the quota server over its engines: the gRPC services that
// agents and operators call, REST beside them, keys and roles, health, readiness
// and metrics. It is stateless: policy and tenants are a view of the policy store,
// leases and usage belong to theirs, so any number of servers may share them.
//
// It goes on where it can. Without the ledger's database it renews leases from the
// policy in memory, and says in its readiness what it cannot do; agents keep what
// they could not settle. Nothing that was acknowledged is lost with a server: a
// receipt is sent only after the ledger's commit.
//
// Read server.go first: what a server is made of, and how it starts and ends. Then
// renew.go, settle.go and watch.go for what agents call, view.go for the policy
// in memory, auth.go for who may call what, and claim.go with overdrawn.go for how
// much an agent may settle. Package boot opens the engines from a
// configuration and is what programs and tests start.
package server
