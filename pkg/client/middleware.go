package client

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/f4ee788f/quota/internal/headers"
	"github.com/f4ee788f/quota/internal/limit"
)

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

// Attributes returns tenant, user, ip, endpoint ("METHOD /path") and method. The path
// is without empty, "." and ".." elements, as the quota-agent's doors have it too.
func (e Extract) Attributes(r *http.Request) []Attribute {
	header := func(name, otherwise string) string {
		if name == "" {
			name = otherwise
		}
		return r.Header.Get(name)
	}
	return []Attribute{
		{AttrTenant, header(e.TenantHeader, "X-Tenant")},
		{AttrUser, header(e.UserHeader, "X-User")},
		{AttrIP, e.ip(r)},
		{AttrEndpoint, r.Method + " " + limit.CleanPath(r.URL.Path)},
		{AttrMethod, r.Method},
	}
}

func (e Extract) ip(r *http.Request) string {
	if e.IPHeader != "" {
		// Each proxy appends what it saw: of several header lines and elements the
		// last is the one that the nearest proxy vouches for.
		if lines := r.Header.Values(e.IPHeader); len(lines) > 0 {
			last := lines[len(lines)-1]
			return strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
		}
		return ""
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "" // a Unix socket, or no address at all
	}
	return host
}

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

// Decider decides requests: a Client or a Thin.
type Decider interface {
	AllowN(ctx context.Context, n int64, attributes ...Attribute) Decision
}

// Middleware decides each request before next sees it, and gives its slots of concurrency
// limits back when next returns. Answers carry RateLimit and
// RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10) and X-RateLimit-Limit,
// -Remaining and -Reset; a denial is 429 (503 where the service and not the
// caller is at fault, 504 where it waited its turn in vain) with Retry-After and a problem+json body that names the
// violated limit.
func Middleware(c Decider, opts ...MiddlewareOption) func(next http.Handler) http.Handler {
	m := middleware{attributes: Extract{}.Attributes, cost: func(*http.Request) int64 { return 1 }}
	for _, o := range opts {
		o(&m)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d := c.AllowN(r.Context(), m.cost(r), m.attributes(r)...)
			d.EachHeader(func(name, value string) { w.Header().Set(name, value) })
			switch {
			case d.Allowed:
				defer d.Done()
				next.ServeHTTP(w, r)
			case m.degraded == nil || !m.degraded(w, r, d):
				headers.Write(w, d.answer())
			}
		})
	}
}

// EachHeader calls set for every HTTP header that tells the caller of the
// decision: none where no limit decided and nothing was denied.
func (d Decision) EachHeader(set func(name, value string)) { headers.Each(d.answer(), set) }

// Status is the decision's HTTP status: 200, 429, 503 where the service is at fault, or 504
// where the request waited its turn in vain.
func (d Decision) Status() int { return headers.Status(d.answer()) }

// Problem is a denial's body, of type application/problem+json.
func (d Decision) Problem() []byte { return d.ProblemOf(d.Status()) }

// ProblemOf is Problem of an answer with another status than Status, for gateways that understand only some.
func (d Decision) ProblemOf(status int) []byte { return headers.Problem(d.answer(), status) }

func (d Decision) answer() headers.Answer {
	a := headers.Answer{Allowed: d.Allowed, RetryAfter: d.RetryAfter, Reason: d.Reason.String()}
	switch d.Reason {
	case ReasonUnknown, ReasonOutage, ReasonDeadline, ReasonCrowded, ReasonClosed:
		a.Fault = !d.Allowed
	case ReasonQueueTimeout:
		a.Late = true
	}
	t := d.Details()
	a.Limit, a.Quota, a.Window, a.Remaining, a.Reset = t.Limit, t.Quota, t.Window, t.Remaining, t.Reset
	return a
}
