// Package view is what this server knows of the policy store. It holds the policy in force, the shadow policy, switches
// and keys whole, and tenants as far as they are in use.
//
// A change in the store is in force here within a second. While the store is away, the view goes on from memory. A
// tenant whose rules cannot be made out keeps those it had. One goroutine at a time looks at the store. A caller that
// made a change may ask for a look, and callers that wait share one. Agents' streams take from the view what they have
// not been sent (feed.go).
//
// It imports no other room: Hooks and Keys tell others of a change. Read view.go first, then tenants.go.
package view
