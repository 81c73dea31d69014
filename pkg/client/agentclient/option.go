package agentclient

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/f4ee788f/quota/internal/core/connect"
	"github.com/f4ee788f/quota/pkg/client"
)

type config struct {
	connect    connect.Options
	failure    client.FailureMode
	firstWait  time.Duration
	maxWait    time.Duration
	maxWaiting int
	logger     *slog.Logger
}

// Option changes a default of Dial.
type Option func(*config)

// WithTLS talks TLS to the agent. Without it the connection is plain.
func WithTLS(t *tls.Config) Option { return func(c *config) { c.connect.TLS = t } }

// WithDialer connects in place of the net package: for tests and tunnels.
func WithDialer(d func(ctx context.Context, addr string) (net.Conn, error)) Option {
	return func(c *config) { c.connect.Dialer = d }
}

// WithFailureMode says how to decide while the agent is away. The default is client.FailClosed.
func WithFailureMode(m client.FailureMode) Option { return func(c *config) { c.failure = m } }

// WithFirstWait bounds how long Dial waits for the agent, by default one second. 0 does not wait.
func WithFirstWait(d time.Duration) Option { return func(c *config) { c.firstWait = d } }

// WithMaxWait bounds how long a request waits for its answer, by default one second; its context may end earlier.
func WithMaxWait(d time.Duration) Option { return func(c *config) { c.maxWait = d } }

// WithMaxWaiting bounds the requests that wait at one time, by default 16,384; more are denied with
// client.ReasonOverloaded.
func WithMaxWaiting(n int) Option { return func(c *config) { c.maxWaiting = n } }

// WithLogger takes logs of changes: the agent lost and found. By default warnings and errors go to slog.Default().
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }
