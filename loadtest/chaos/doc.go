// Command chaos runs the whole product as processes of this machine. It starts two servers, four gateways and a
// sidecar, a Redis Cluster of six nodes, and a Postgres. It loads them, injects the faults that a seed draws, and heals
// them. Then the ledger must hold, to the unit, what the gateways counted outside the product. No limit may be exceeded
// by more than is documented. docs/reliability.md says what is demanded; -list names each fault.
//
// Read main.go for a run from begin to end, and site.go for what runs. Read plan.go for how faults are drawn, and the
// faults_*.go files for what each does. Read settled.go and bounded.go for what is demanded at the end. The packages
// below it are the tools: proxy disturbs messages, clock sets clocks.
package main
