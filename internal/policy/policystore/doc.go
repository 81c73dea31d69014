// Package policystore is the contract of a store that keeps a policy: immutable numbered versions of the document.
// Beside it the store keeps the tenants, what is agreed with them (terms), keys, switches and the audit log.
//
// Applying a document stores a version and upserts the tenants it names: their plan, parent and overrides become what
// it says. Tenants created by hand are not in the document and stay as they are; so do tenants that an earlier document
// named. Every change is one transaction together with its audit row: a crash loses all of a change or nothing of it.
//
// Read store.go first; sqlstore is the engine, policytest its suite.
package policystore
