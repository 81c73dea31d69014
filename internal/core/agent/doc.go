// Package agent ties what sits in a gateway and decides: it finds the buckets that hold a request, and who has their leases
// renewed and their usage told. It has no clock, no goroutine and no network: whoever owns the agent — the SDK's session in
// production, loadtest/sim under virtual time — carries renewals to a server and grants back.
//
// registry.go has the buckets and the tenants in use, resolve.go compiles what holds a tenant's requests, and resolution.go
// knows requests that come again. A bucket is internal/core/bucket's, its usage internal/core/usage's.
package agent
