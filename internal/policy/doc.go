// Package policy is the operators' document: limits, plans, tenants and
// gateways in YAML, read strictly (every fault at once, each with its line),
// compiled to a limit.Policy, compared, and kept as immutable numbered versions
// by a Store, with the tenants, keys, switches and the audit log beside it.
//
// Applying a document stores a version and upserts the tenants it names: their
// plan, parent and overrides become what it says. Tenants created by hand are
// not in the document and stay as they are; so do tenants that an earlier
// document named. docs/policy.md is the reference of the document.
//
// Every change is one transaction together with its audit row: a crash loses
// all of a change or nothing of it. Read document.go first, then limits.go,
// store.go for the contract of the store; sqlstore is the engine, policytest
// its suite.
package policy
