// Package policy is the operators' document: limits, plans, prices, tenants and gateways in YAML, read strictly (every
// fault at once, each with its line), compiled to a limit.Policy, and compared. docs/policy.md is its reference.
//
// It is pure: what it reads is kept by a policystore.Store, and what is agreed with tenants about money is in terms.
// Read document.go first, then limits.go and compile.go.
package policy
