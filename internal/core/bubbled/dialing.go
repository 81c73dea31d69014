// Package bubbled is what tests in testing/synctest bubbles have in common.
package bubbled

import (
	"context"
	"net"

	"google.golang.org/grpc/test/bufconn"
)

// Dialing makes the connections of a bubble, one at a time. A connection has four timers that are due as they
// are made. In Go 1.26 the race detector crashes if two goroutines make such timers of one bubble at once. The
// dialer holds it. It may be used only in the bubble in which it was made.
type Dialing chan struct{}

// NewDialing returns the Dialing that all dialers of a bubble share, for any server.
func NewDialing() Dialing { return make(Dialing, 1) }

// Dial connects to a listener when nobody else does; an error is the listener's, or says that ctx ended before.
func (d Dialing) Dial(ctx context.Context, to *bufconn.Listener) (net.Conn, error) {
	select {
	case d <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-d }()
	return to.DialContext(ctx)
}

// To is a dialer to one listener, as gRPC has them.
func (d Dialing) To(l *bufconn.Listener) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, _ string) (net.Conn, error) { return d.Dial(ctx, l) }
}
