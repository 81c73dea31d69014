// Package httpquota decides HTTP requests against quotas before their handlers run: it is net/http middleware over
// package client, and writes decisions as HTTP answers.
package httpquota

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/f4ee788f/quota/internal/core/headers"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

// Option changes a default of Middleware.
type Option func(*middleware)

type middleware struct {
	attributes func(*http.Request) []client.Attribute
	cost       func(*http.Request) int64
	degraded   func(http.ResponseWriter, *http.Request, client.Decision) bool
	unknown    int
	openAI     bool
}

// Extract says where Attributes finds the attributes of an HTTP request. The zero value takes the tenant from X-Tenant
// and the user from X-User.
type Extract struct {
	TenantHeader string // default X-Tenant; the code that authenticates must set or clear it
	UserHeader   string // default X-User, likewise
	// IPHeader names a header whose last element is the caller's address, as
	// the proxy before this one appends it to X-Forwarded-For. Empty takes the
	// connection's own address, for a header that nobody strips can be forged.
	IPHeader string
}

// Attributes returns tenant, user, ip, endpoint ("METHOD /path") and method. The path
// is without empty, "." and ".." elements, as the quota-agent's doors have it too.
func (e Extract) Attributes(r *http.Request) []client.Attribute {
	header := func(name, otherwise string) string {
		if name == "" {
			name = otherwise
		}
		return r.Header.Get(name)
	}
	return []client.Attribute{
		client.Tenant(header(e.TenantHeader, "X-Tenant")),
		client.User(header(e.UserHeader, "X-User")),
		client.IP(e.ip(r)),
		client.Endpoint(r.Method + " " + limit.CleanPath(r.URL.Path)),
		client.Method(r.Method),
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

// WithAttributes replaces the extraction of attributes; the default is Extract{}.Attributes.
func WithAttributes(f func(*http.Request) []client.Attribute) Option {
	return func(m *middleware) { m.attributes = f }
}

// WithCost says what a request costs; by default one unit.
func WithCost(f func(*http.Request) int64) Option {
	return func(m *middleware) { m.cost = f }
}

// WithDegraded is asked before a denial is written: it may answer instead, with cached
// data say, and returns true if it did. The rate limit headers are set already.
func WithDegraded(f func(http.ResponseWriter, *http.Request, client.Decision) bool) Option {
	return func(m *middleware) { m.degraded = f }
}

// WithUnknownTenant is the status of requests whose tenant is not known, or has no plan. It is 403 by default; 401
// suits where the tenant alone identifies a caller.
func WithUnknownTenant(status int) Option {
	return func(m *middleware) { m.unknown = status }
}

// WithOpenAIHeaders adds the headers of OpenAIHeaders to answers.
func WithOpenAIHeaders() Option { return func(m *middleware) { m.openAI = true } }

// Decider decides requests: a client.Client or an agentclient.Client.
type Decider interface {
	AllowN(ctx context.Context, n int64, attributes ...client.Attribute) client.Decision
}

// Middleware decides each request before next sees it, and gives its slots of concurrency limits back when next
// returns. Answers carry RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10) and
// X-RateLimit-Limit, -Remaining and -Reset. A denial has the status of docs/doors.md's table. It is 429 with
// Retry-After where a limit is used up, and another where waiting does not help or the service is at fault. Its
// problem+json body names the reason and the violated limit.
func Middleware(c Decider, opts ...Option) func(next http.Handler) http.Handler {
	m := middleware{attributes: Extract{}.Attributes, cost: func(*http.Request) int64 { return 1 }}
	for _, o := range opts {
		o(&m)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d := c.AllowN(r.Context(), m.cost(r), m.attributes(r)...)
			Headers(d, w.Header().Set)
			if m.openAI {
				OpenAIHeaders(d, w.Header().Set)
			}
			switch {
			case d.Allowed:
				defer d.Done()
				next.ServeHTTP(w, r)
			case m.degraded == nil || !m.degraded(w, r, d):
				WriteDenial(w, d, StatusWith(d, m.unknown))
			}
		})
	}
}

// Headers calls set for every HTTP header that tells the caller of the
// decision: none where no limit decided and nothing was denied.
func Headers(d client.Decision, set func(name, value string)) { headers.Each(answer(d), set) }

// OpenAIHeaders calls set for headers as OpenAI's API has them: x-ratelimit-limit-requests, -remaining-requests and
// -reset-requests, the last as in "6m0s". Limits of other costs, such as tokens, have theirs under the cost's name, and
// limits that weigh several under their own. See client.Decision.ByUnit.
func OpenAIHeaders(d client.Decision, set func(name, value string)) {
	for unit, t := range d.ByUnit() {
		headers.OpenAI(answerOf(d, t), unit, set)
	}
}

// Status is the decision's HTTP status, as docs/doors.md's table has it. It is 200, 429 where a limit is used up, 503
// where the service is at fault, and others.
func Status(d client.Decision) int { return headers.Status(answer(d)) }

// StatusWith is Status with another one for unknown tenants; 0 keeps 403.
func StatusWith(d client.Decision, unknownTenant int) int {
	if !d.Allowed && d.Reason == client.ReasonNoPlan && unknownTenant != 0 {
		return unknownTenant
	}
	return Status(d)
}

// WriteDenial writes a denial with that status and its body, of type application/problem+json. The headers are the
// caller's to set before.
func WriteDenial(w http.ResponseWriter, d client.Decision, status int) {
	headers.Write(w, answer(d), status)
}

func answer(d client.Decision) headers.Answer { return answerOf(d, d.Details()) }

func answerOf(d client.Decision, t client.Details) headers.Answer {
	return headers.Answer{
		Allowed: d.Allowed, RetryAfter: d.RetryAfter, Reason: d.Reason.String(),
		Limit: t.Limit, Quota: t.Quota, Cost: t.Cost, Window: t.Window, Remaining: t.Remaining, Reset: t.Reset,
	}
}
