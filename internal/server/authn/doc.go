// Package authn says who calls, what their key lets them do, and how much of it: keys and roles (keyring.go, auth.go),
// which method needs which role (access.go), which tenants and limits a key is for (scope.go), and what one caller may
// have at once (budget.go, reads.go, wrongkeys.go). The gate is what every call passes, by gRPC and by REST.
//
// It promises that a method that access.go does not name is refused to everybody, that a stream ends within a second of
// its key, and that nothing is told of tenants that are not a key's. It keeps keys as hashes, and asks for tenants by
// the Tree that it is given.
//
// Read gate.go first: what becomes of a call. Then auth.go.
package authn
