// Package policy is the operators' document: limits, plans, prices, tenants and gateways in YAML. It is read strictly
// (every fault at once, each with its line), compiled to a limit.Policy, and compared. docs/policy.md is its reference.
//
// It is pure. A policystore.Store keeps documents; package terms has what is agreed with tenants about money. Read
// document.go first, then limits.go and compile.go.
package policy
