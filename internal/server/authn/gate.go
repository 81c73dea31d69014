package authn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/listen"
)

// Gate is passed by every call, by gRPC and REST. It logs the call, recovers from panics, and lets it in or refuses it
// by its key.
type Gate struct {
	log      *slog.Logger
	keys     *Keyring
	rpcs     *prometheus.CounterVec // method, code
	streams  *listen.Streams        // that watch health
	reads    *reads
	stopping <-chan struct{} // closed when streams have to end
}

// NewGate returns a gate whose streams end when stopping is closed.
func NewGate(keys *Keyring, log *slog.Logger, r prometheus.Registerer, stopping <-chan struct{}) (*Gate, error) {
	g := &Gate{
		log: log, keys: keys, streams: listen.NewHealth(), reads: newReads(), stopping: stopping,
		rpcs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_server_rpcs_total", Help: "Calls answered, by method and gRPC code.",
		}, []string{"method", "code"}),
	}
	return g, r.Register(g.rpcs)
}

// Options have gRPC pass every call through the gate.
func (g *Gate) Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(g.tap), grpc.UnaryInterceptor(g.Unary), grpc.StreamInterceptor(g.stream), grpc.ForceServerCodecV2(g.reads.answers),
	}
}

// callTimeout bounds a call whose caller has set no deadline, or a longer one: an
// engine that hangs must not collect calls. It is above the ledger's own bounds.
const callTimeout = 35 * time.Second

// Unary is the gate for calls that are answered once, by gRPC or in this process.
func (g *Gate) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer g.finish(ctx, info.FullMethod, time.Now(), &err)
	ctx, err = g.enter(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if err := g.admit(ctx, info.FullMethod, req.(proto.Message)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	end, err := g.reads.begin(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if !whenWritten(ctx, end) {
		defer end()
	}
	return handler(ctx, req)
}

func (g *Gate) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer g.finish(stream.Context(), info.FullMethod, time.Now(), &err)
	ctx, err := g.enter(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(info.FullMethod, healthPrefix) {
		secret, _ := bearer(ctx) // it was read before
		var release func()
		ctx, release = g.keys.hold(ctx, secret)
		defer release()
		defer func() {
			if cause := context.Cause(ctx); errors.Is(cause, fault.ErrUnauthenticated) {
				err = cause // and not that somebody canceled it
			}
		}()
	}
	if strings.HasPrefix(info.FullMethod, healthPrefix) {
		// A health stream ends with its context only, and would hold up the end.
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-g.stopping:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return g.streams.Health(srv, &authorizedStream{ServerStream: stream, gate: g, method: info.FullMethod, ctx: ctx}, info, handler)
}

// Serve lets a call pass that did not come by gRPC and is answered as it goes. read returns its request once the caller
// is let in. The context of do ends with the key, like a stream's.
func (g *Gate) Serve(ctx context.Context, method string, read func() (proto.Message, error), do func(context.Context) error) (err error) {
	defer g.finish(ctx, method, time.Now(), &err)
	if ctx, err = g.enter(ctx, method); err != nil {
		return err
	}
	secret, _ := bearer(ctx) // it was read before
	ctx, release := g.keys.hold(ctx, secret)
	defer release()
	req, err := read()
	if err != nil {
		return err
	}
	if err := g.admit(ctx, method, req); err != nil {
		return err
	}
	return do(ctx)
}

// admit refuses a message that breaks a bound, or that the caller's key is not for.
func (g *Gate) admit(ctx context.Context, method string, req proto.Message) error {
	if err := wire.Check(req); err != nil {
		return err
	}
	p := PrincipalOf(ctx)
	return p.narrow(ctx, needs[method], req)
}

// tap refuses a caller without a good key by its headers, before a message of
// up to wire.MaxMessage bytes is read from it.
func (g *Gate) tap(ctx context.Context, info *tap.Info) (_ context.Context, err error) {
	if _, known := needs[info.FullMethodName]; !known {
		return ctx, nil // health, and what the server does not know
	}
	if _, err := g.enter(ctx, info.FullMethodName); err != nil {
		g.finish(ctx, info.FullMethodName, time.Now(), &err)
		return nil, err
	}
	return ctx, nil
}

// enter lets a call with a good key pass. From then on its connection is known: see listen.Bounds.
func (g *Gate) enter(ctx context.Context, method string) (context.Context, error) {
	ctx, err := g.keys.authorize(ctx, method)
	if err != nil || strings.HasPrefix(method, healthPrefix) {
		return ctx, err
	}
	known := listen.KnownBy(ctx)
	if p, ok := peer.FromContext(ctx); ok {
		known = listen.Known(p.Addr)
	}
	if !known {
		return nil, fmt.Errorf("%w: as many connections are open as there may be", fault.ErrBusy)
	}
	return ctx, nil
}

// finish turns a panic into an error, so that one bad call cannot end the
// server, and records how the call went.
func (g *Gate) finish(ctx context.Context, method string, start time.Time, err *error) {
	if p := recover(); p != nil {
		g.log.ErrorContext(ctx, "panic in a call", "method", method, "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "internal error")
	}
	*err = wire.Error(*err)
	code := status.Code(*err)
	g.rpcs.WithLabelValues(method, code.String()).Inc()
	level := slog.LevelDebug
	if code == codes.Internal || code == codes.Unknown {
		level = slog.LevelError
	}
	if g.log.Enabled(ctx, level) {
		args := []any{"method", method, "code", code.String(), "took", time.Since(start)}
		if *err != nil {
			args = append(args, "error", *err)
		}
		g.log.Log(ctx, level, "call", args...)
	}
}

// authorizedStream is a stream whose context knows who calls.
type authorizedStream struct {
	grpc.ServerStream
	gate   *Gate
	method string
	ctx    context.Context
}

// RecvMsg refuses a message that may not be asked.
func (s *authorizedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.gate.admit(s.ctx, s.method, m.(proto.Message))
}

// Context knows who calls.
func (s *authorizedStream) Context() context.Context { return s.ctx }
