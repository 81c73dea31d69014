// Package headers writes what a decision says to an HTTP caller: RateLimit and
// RateLimit-Policy as in draft-ietf-httpapi-ratelimit-headers-10, X-RateLimit-* for
// older clients, Retry-After (RFC 9110), and the problem+json body (RFC 9457) of a
// denial. The SDK's middleware and quota-agent's doors share it. Standard library only.
package headers
