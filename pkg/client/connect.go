package client

import (
	"context"
	"fmt"
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

	"github.com/f4ee788f/quota/internal/core/target"
	"github.com/f4ee788f/quota/internal/core/wire"
)

// servers splits addresses with commas between, and refuses what cannot be meant. A dialer may have names of its own.
func servers(text string, cfg *config) ([]string, error) {
	if (cfg.dialer != nil || cfg.api != nil) && strings.HasPrefix(text, "passthrough:") {
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

// connect prepares the connection; it is made when first used.
func connect(text string, cfg *config, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	all, err := servers(text, cfg)
	if err != nil {
		return nil, err
	}
	opts := append([]grpc.DialOption{
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		// A server whose host is gone answers nothing: calls time out by themselves, and
		// this finds another connection for them.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxSettleBytes), grpc.MaxCallSendMsgSize(wire.MaxSettleBytes+1<<20)),
		grpc.WithDisableServiceConfig(),
	}, more...)
	if cfg.tls != nil {
		opts = append(opts, grpc.WithTransportCredentials(credentials.NewTLS(cfg.tls)))
	} else {
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	if cfg.key != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer{cfg.key, cfg.tls != nil}))
	}
	if cfg.dialer != nil {
		opts = append(opts, grpc.WithContextDialer(cfg.dialer))
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
