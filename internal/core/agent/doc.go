// Package agent ties what sits in a gateway and decides: it finds the buckets that hold a request, and who has their leases
// renewed and their usage told. It has no goroutine and no network, and reads the clock in Registry.Now alone: whoever owns the
// agent — the SDK's session in production, loadtest/sim under virtual time — carries renewals to a server and grants back.
//
// registry.go has the buckets and the tenants in use. resolve.go and compile.go make the set of limits that hold a tenant's
// requests (set.go), and resolution.go is what a request came to that comes again. A bucket is internal/core/bucket's, its
// usage internal/core/usage's.
package agent
