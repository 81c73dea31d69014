// Package grpcquota decides gRPC calls against quotas before their handlers run: server
// interceptors over package client, for unary calls and streams. A call that is
// denied ends with the code of docs/doors.md's table: RESOURCE_EXHAUSTED with a RetryInfo where a limit
// is used up, UNAVAILABLE where the service and not the caller is at fault, and others. The
// slots that it has of concurrency limits come back when it ends, a stream's when the stream does.
package grpcquota

import (
	"context"
	"net"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/f4ee788f/quota/internal/core/headers"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/httpquota"
)

// Decider decides calls: a client.Client or an agentclient.Client.
type Decider interface {
	AllowN(ctx context.Context, n int64, attributes ...client.Attribute) client.Decision
}

// Option changes a default.
type Option func(*door)

type door struct {
	client     Decider
	attributes func(ctx context.Context, method string) []client.Attribute
	cost       func(ctx context.Context, method string, request any) int64
	unknown    codes.Code
}

// WithAttributes replaces the extraction of attributes; the default is Attributes. method is the
// full one, /package.Service/Method.
func WithAttributes(f func(ctx context.Context, method string) []client.Attribute) Option {
	return func(d *door) { d.attributes = f }
}

// WithCost says what a call costs; by default one unit. request is nil for a stream.
func WithCost(f func(ctx context.Context, method string, request any) int64) Option {
	return func(d *door) { d.cost = f }
}

// WithUnknownTenant is the code of calls whose tenant is not known, or has no plan: PERMISSION_DENIED by default, or
// UNAUTHENTICATED where the tenant alone identifies a caller.
func WithUnknownTenant(code codes.Code) Option {
	return func(d *door) { d.unknown = code }
}

// Attributes returns a call's attributes. The tenant comes from the metadata x-tenant and the user from x-user: the
// code that authenticates must set or clear both. ip is the peer's address. endpoint and method are both the full
// method.
func Attributes(ctx context.Context, method string) []client.Attribute {
	md, _ := metadata.FromIncomingContext(ctx)
	first := func(name string) string {
		if v := md.Get(name); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	return []client.Attribute{
		client.Tenant(first("x-tenant")),
		client.User(first("x-user")),
		client.IP(ip(ctx)),
		client.Endpoint(method),
		client.Method(method),
	}
}

func ip(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return "" // a Unix socket
	}
	return host
}

func newDoor(c Decider, opts []Option) *door {
	d := &door{
		client: c, attributes: Attributes,
		cost: func(context.Context, string, any) int64 { return 1 },
	}
	for _, o := range opts {
		o(d)
	}
	return d
}

// Unary returns an interceptor of unary calls.
func Unary(c Decider, opts ...Option) grpc.UnaryServerInterceptor {
	d := newDoor(c, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		decision := d.decide(ctx, info.FullMethod, req)
		_ = grpc.SetHeader(ctx, headersOf(decision)) // it fails only where headers were sent already
		if !decision.Allowed {
			return nil, d.refusal(decision)
		}
		defer decision.Done()
		return next(ctx, req)
	}
}

// Stream returns an interceptor of streams: one decision for each.
func Stream(c Decider, opts ...Option) grpc.StreamServerInterceptor {
	d := newDoor(c, opts)
	return func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		decision := d.decide(s.Context(), info.FullMethod, nil)
		_ = s.SetHeader(headersOf(decision)) // likewise
		if !decision.Allowed {
			return d.refusal(decision)
		}
		defer decision.Done()
		return next(srv, s)
	}
}

func (d *door) decide(ctx context.Context, method string, req any) client.Decision {
	return d.client.AllowN(ctx, d.cost(ctx, method, req), d.attributes(ctx, method)...)
}

func headersOf(d client.Decision) metadata.MD {
	md := metadata.MD{}
	httpquota.Headers(d, func(name, value string) { md.Set(strings.ToLower(name), value) })
	return md
}

func (d *door) refusal(of client.Decision) error {
	row := headers.RowOf(of.Reason.String())
	code := row.Code
	if of.Reason == client.ReasonNoPlan && d.unknown != codes.OK {
		code = d.unknown
	}
	message := "quota: denied: " + of.Reason.String()
	if name := of.Limit(); name != "" {
		message += " " + name
	}
	s := status.New(code, message)
	if row.Waits && of.RetryAfter > 0 {
		if with, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(of.RetryAfter)}); err == nil {
			s = with
		}
	}
	return s.Err()
}
