// Package httpretry is a well-behaved caller of HTTP services that limit their callers. Its Transport makes a denied or
// failed request again where that does no harm. It waits as long as Retry-After or RateLimit says
// (draft-ietf-httpapi-ratelimit-headers-10), and a random time more.
//
// Read transport.go first. The clients of clients/python and clients/node share the rules and the vectors of
// clients/vectors. Standard library only.
package httpretry
