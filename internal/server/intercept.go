package server

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

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/listen"
)

// gate is what every call passes: logged, recovered from panics, and let in or
// refused by its key. REST calls pass the same gate.
type gate struct {
	log      *slog.Logger
	keys     *keyring
	metrics  *metrics
	streams  *listen.Streams // that watch health
	reads    *reads
	stopping <-chan struct{} // closed when streams have to end
}

// callTimeout bounds a call whose caller has set no deadline, or a longer one: an
// engine that hangs must not collect calls. It is above the ledger's own bounds.
const callTimeout = 35 * time.Second

func (g *gate) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
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

func (g *gate) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
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

// admit refuses a message that breaks a bound, or that the caller's key is not for.
func (g *gate) admit(ctx context.Context, method string, req proto.Message) error {
	if err := wire.Check(req); err != nil {
		return err
	}
	p := principalOf(ctx)
	return p.narrow(ctx, needs[method], req)
}

// tap refuses a caller without a good key by its headers, before a message of
// up to wire.MaxMessage bytes is read from it.
func (g *gate) tap(ctx context.Context, info *tap.Info) (_ context.Context, err error) {
	if _, known := needs[info.FullMethodName]; !known {
		return ctx, nil // health, and what the server does not know
	}
	if _, err := g.enter(ctx, info.FullMethodName); err != nil {
		g.finish(ctx, info.FullMethodName, time.Now(), &err)
		return nil, err
	}
	return ctx, nil
}

// enter lets a call pass whose key is good, from a connection that is known from then on: see listen.Bounds.
func (g *gate) enter(ctx context.Context, method string) (context.Context, error) {
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
func (g *gate) finish(ctx context.Context, method string, start time.Time, err *error) {
	if p := recover(); p != nil {
		g.log.ErrorContext(ctx, "panic in a call", "method", method, "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "internal error")
	}
	*err = wire.Error(*err)
	code := status.Code(*err)
	g.metrics.rpcs.WithLabelValues(method, code.String()).Inc()
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
	gate   *gate
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
