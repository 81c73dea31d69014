// Command chaos runs the whole product as processes of this machine — two servers, four
// gateways and a sidecar, a Redis Cluster of six nodes, a Postgres — loads it, does to it
// what a seed says, heals it, and then demands that the ledger holds what the gateways
// counted outside the product, to the unit, and that no limit was exceeded by more
// than is documented. docs/reliability.md says what is demanded, -list each fault.
//
// Read main.go for a run from begin to end; site.go for what runs; plan.go for how faults are
// drawn, and the faults_*.go files for what each does; settled.go and bounded.go for
// what is demanded at the end. The packages below it are the tools: proxy does things
// to messages, clock to clocks.
package main
