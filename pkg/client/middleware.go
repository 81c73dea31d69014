package client

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/f4ee788f/quota/internal/core/headers"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// MiddlewareOption changes a default of Middleware.
type MiddlewareOption func(*middleware)

type middleware struct {
	attributes func(*http.Request) []Attribute
	cost       func(*http.Request) int64
	degraded   func(http.ResponseWriter, *http.Request, Decision) bool
	unknown    int
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
			last = strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
			if h, _, err := net.SplitHostPort(last); err == nil {
				last = h // some proxies add the port
			}
			a, err := netip.ParseAddr(strings.Trim(last, "[]"))
			if err != nil {
				return "" // not known, and not what anybody wrote
			}
			return a.Unmap().WithZone("").String()
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

// UnknownTenant is the status of requests whose tenant is not known, or has no plan: 403 by default, or 401 where who
// calls is known by its tenant alone.
func UnknownTenant(status int) MiddlewareOption {
	return func(m *middleware) { m.unknown = status }
}

// Decider decides requests: a Client or a Thin.
type Decider interface {
	AllowN(ctx context.Context, n int64, attributes ...Attribute) Decision
}

// Middleware decides each request before next sees it, and gives its slots of concurrency
// limits back when next returns. Answers carry RateLimit and
// RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10) and X-RateLimit-Limit,
// -Remaining and -Reset. A denial has the status of docs/doors.md's table: 429 with Retry-After where a limit is used
// up, and another where waiting does not help or the service is at fault. Its problem+json body names the reason and the
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
				d.WriteDenial(w, d.StatusWith(m.unknown))
			}
		})
	}
}

// EachHeader calls set for every HTTP header that tells the caller of the
// decision: none where no limit decided and nothing was denied.
func (d Decision) EachHeader(set func(name, value string)) { headers.Each(d.answer(), set) }

// Status is the decision's HTTP status, as docs/doors.md's table has it: 200, 429 where a limit is used up, 503 where the
// service is at fault, and others.
func (d Decision) Status() int { return headers.Status(d.answer()) }

// StatusWith is Status with another one for unknown tenants; 0 keeps 403.
func (d Decision) StatusWith(unknownTenant int) int {
	if !d.Allowed && d.Reason == ReasonNoPlan && unknownTenant != 0 {
		return unknownTenant
	}
	return d.Status()
}

// WriteDenial writes a denial with that status and its body. The headers of EachHeader are the caller's to set before.
func (d Decision) WriteDenial(w http.ResponseWriter, status int) {
	headers.Write(w, d.answer(), status)
}

// Problem is a denial's body, of type application/problem+json.
func (d Decision) Problem() []byte { return d.ProblemOf(d.Status()) }

// ProblemOf is Problem of an answer with another status than Status, for gateways that understand only some.
func (d Decision) ProblemOf(status int) []byte { return headers.Problem(d.answer(), status) }

func (d Decision) answer() headers.Answer {
	t := d.Details()
	return headers.Answer{
		Allowed: d.Allowed, RetryAfter: d.RetryAfter, Reason: d.Reason.String(),
		Limit: t.Limit, Quota: t.Quota, Window: t.Window, Remaining: t.Remaining, Reset: t.Reset,
	}
}
