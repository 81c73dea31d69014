// Package agent finds the buckets that hold a request, makes and drops them, and says who a bucket counts to. It has no network,
// reads the clock in Registry.Now alone, and starts a goroutine only where what is remembered outgrows its table (reqcache). Its
// owner, internal/core/session, carries renewals to a server and grants back.
//
// registry.go has the buckets and the tenants in use, entry.go a bucket with what identifies it. resolve.go and compile.go make
// the set of limits that hold a tenant's requests (set.go), and resolution.go is what a request came to that comes again.
// touch.go makes buckets; sweep.go forgets tenants, and crowd.go shares the room out. A bucket is internal/core/bucket's, its
// usage internal/core/usage's.
package agent
