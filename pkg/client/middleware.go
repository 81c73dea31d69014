package client

import "net/http"

// MiddlewareOption changes a default of Middleware.
type MiddlewareOption func(*middleware)

type middleware struct {
	attributes func(*http.Request) []Attribute
	cost       func(*http.Request) int64
	degraded   func(http.ResponseWriter, *http.Request, Decision) bool
}

// Extract says where Attributes finds what a gateway knows of an HTTP request.
// The zero value takes the tenant from X-Tenant and the user from X-User.
type Extract struct {
	TenantHeader string // default X-Tenant; must be set or cleared by whoever authenticates
	UserHeader   string // default X-User, likewise
	// IPHeader names a header whose last element is the caller's address, as
	// the proxy before this one appends it to X-Forwarded-For. Empty takes the
	// connection's own address, for a header that nobody strips can be forged.
	IPHeader string
}

// Attributes returns tenant, user, ip, endpoint ("METHOD /path") and method.
func (e Extract) Attributes(r *http.Request) []Attribute { return nil }

// ByRequest replaces the extraction of attributes; the default is Extract{}.Attributes.
func ByRequest(f func(*http.Request) []Attribute) MiddlewareOption {
	return func(m *middleware) { m.attributes = f }
}

// CostOf says what a request costs; by default one unit.
func CostOf(f func(*http.Request) int64) MiddlewareOption {
	return func(m *middleware) { m.cost = f }
}

// Degraded is asked before a denial is written: it may answer instead, with cached
// data say, and returns true if it did. The rate limit headers are set already.
func Degraded(f func(http.ResponseWriter, *http.Request, Decision) bool) MiddlewareOption {
	return func(m *middleware) { m.degraded = f }
}

// Middleware decides each request before next sees it. Answers carry RateLimit and
// RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10) and X-RateLimit-Limit,
// -Remaining and -Reset; a denial is 429 (503 where the service and not the
// caller is at fault) with Retry-After and a problem+json body that names the
// violated limit.
func Middleware(c *Client, opts ...MiddlewareOption) func(next http.Handler) http.Handler {
	return func(next http.Handler) http.Handler { return next }
}
