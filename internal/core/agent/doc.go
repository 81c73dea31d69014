// Package agent finds the buckets of a request, makes and drops them, and says whose share of the room each takes. It has no
// network, and reads the clock in Registry.Now alone. Its owner, internal/core/session, carries renewals to a server and
// grants back.
//
// registry.go has the buckets and the tenants in use, entry.go a bucket with what identifies it. resolve.go and
// compile.go make the set of limits that hold a tenant's requests (set.go), and resolution.go remembers the buckets of
// a request that comes again. touch.go makes and drops buckets; sweep.go forgets tenants, and crowd.go shares the room
// out. internal/core/match says which limits hold a request, and internal/core/bucket is the bucket itself.
package agent
