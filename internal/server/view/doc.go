// Package view is what this server knows of the policy store: the policy in force and the one that is tried, switches
// and keys whole, tenants as far as they are in use.
//
// It promises that a change that the store has is in force here within a second, that it goes on from memory while the
// store is away, and that a tenant that cannot be made out keeps what it had. One goroutine at a time looks at the
// store; whoever made a change may ask for a look, and callers that wait share one. Agents' streams take from the view
// what they have not been sent (feed.go).
//
// It imports no other room: who has to know of a change is told by Hooks and Keys. Read view.go first, then tenants.go.
package view
