// Package authn says who calls, what their key lets them do, and how much of it. Keys and roles are in keyring.go and
// auth.go, the role of each method in access.go. A key's tenants and limits are in scope.go; what one caller may have
// at once is in budget.go, reads.go and wrongkeys.go. Every call, by gRPC or REST, passes the gate.
//
// It promises three things. A method that access.go does not name is refused to everybody. A stream ends within a
// second of its key. Nobody is told of tenants that their key does not cover. It keeps keys as hashes, and looks
// tenants up in the Tree that it is given.
//
// Read gate.go first: what becomes of a call. Then auth.go.
package authn
