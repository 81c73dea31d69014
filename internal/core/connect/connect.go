// Package connect connects a gateway to its servers over gRPC, and says why that failed.
package connect

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/target"
	"github.com/f4ee788f/quota/internal/core/wire"
)

// Options say how to connect. The zero value talks plain gRPC without a key.
type Options struct {
	TLS    *tls.Config
	Key    string // an agent's key, sent with every call
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

// servers splits addresses with commas between, and refuses what cannot be meant. A dialer may have names of its own.
func (o *Options) servers(text string) ([]string, error) {
	if o.Dialer != nil && strings.HasPrefix(text, "passthrough:") {
		return []string{text}, nil
	}
	all, err := target.List(text)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if len(all) > 1 && strings.HasPrefix(a, "dns:") {
			return nil, fmt.Errorf("%q is one of several servers: write HOST:PORT or unix:PATH", a)
		}
	}
	return all, nil
}

// Servers prepares the connection to a server, or to several with commas between; it is made when first used.
func (o *Options) Servers(text string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	all, err := o.servers(text)
	if err != nil {
		return nil, err
	}
	opts := append([]grpc.DialOption{
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: again},
			MinConnectTimeout: 2 * time.Second,
		}),
		// A server whose host is gone answers nothing: calls time out by themselves, and
		// this finds another connection for them.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxSettleBytes), grpc.MaxCallSendMsgSize(wire.MaxSettleBytes+1<<20)),
		grpc.WithDisableServiceConfig(),
	}, more...)
	secured := insecure.NewCredentials()
	if o.TLS != nil {
		secured = credentials.NewTLS(o.TLS)
	}
	opts = append(opts, grpc.WithTransportCredentials(spaced{secured, &pace{next: make(map[string]time.Time)}}))
	if o.Key != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer{o.Key, o.TLS != nil}))
	}
	if o.Dialer != nil {
		opts = append(opts, grpc.WithContextDialer(o.Dialer))
	}
	if len(all) == 1 {
		return grpc.NewClient(all[0], opts...)
	}
	var state resolver.State
	for _, a := range all {
		// Each server's certificate is held to its own name, not to the list's.
		host := "localhost" // as gRPC has it of a Unix socket
		if !strings.HasPrefix(a, "unix:") {
			host, _, _ = net.SplitHostPort(a) // checked
		}
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a, ServerName: host})
	}
	list := manual.NewBuilderWithScheme("quota")
	list.InitialState(state)
	return grpc.NewClient("quota:///servers", append(opts, grpc.WithResolvers(list))...)
}

// bearer sends a key with every call.
type bearer struct {
	key string
	tls bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.key}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.tls }

// Explain says why a call failed, and what to do where one side talks TLS and the other does not.
func (o *Options) Explain(err error) string {
	why := status.Convert(err).Message()
	switch {
	case o.TLS == nil && strings.Contains(why, "server preface"):
		why += "; if the server talks TLS, say so (WithTLS)"
	case o.TLS != nil && strings.Contains(why, "first record does not look like a TLS handshake"):
		why += "; the server does not talk TLS (WithTLS)"
	}
	return why
}

// Logger is that of a program that chose none: warnings and errors, to slog.Default().
func Logger() *slog.Logger { return slog.New(warnings{slog.Default().Handler()}) }

// warnings lets warnings and errors through, and nothing else.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
