// Package gateway is one gateway process of a test: a client that asks for paced
// requests and keeps a record of what was admitted, when and for whom. The record
// is written outside the SDK and is what a test holds the ledger and the error
// bound to.
//
// A gateway that may be killed keeps a trail besides, written request by request.
//
// Read run.go for the process, record.go and trail.go for what it leaves behind, bound.go for how
// the records of all gateways are held to the bound.
package gateway
