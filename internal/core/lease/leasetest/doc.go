// Package leasetest is the contract of lease.Store in code: every store passes
// Run, and Differential holds two stores to equal answers over random histories.
package leasetest
