// Package gateway is one gateway process of a test: a client that asks for paced requests and records them. The record
// says what was admitted, when and for whom. It is written outside the SDK; a test holds the ledger and the error bound
// to it.
//
// A gateway that may be killed also keeps a trail, written request by request.
//
// Read run.go for the process, and record.go and trail.go for what it leaves behind. Read bound.go for how the records
// of all gateways are held to the bound.
package gateway
