// Package terms is what a tenant and its operator agreed on about money: how the tenant is billed and who pays for it.
// It has the tenant's subscriptions, spending cap, credits, and closed statements.
//
// It knows neither the document that says some of this nor the store that keeps it. Money is integer minor units. Read
// subscriber.go first, then payer.go.
package terms
