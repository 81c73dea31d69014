// Package terms is what a tenant and its operator agreed on about money: how it is billed and by whom it is paid for,
// what it subscribed to, its spending cap, its credits, and the statements that were closed.
//
// It knows neither the document that says some of this nor the store that keeps it. Money is integer minor units. Read
// subscriber.go first, then payer.go.
package terms
