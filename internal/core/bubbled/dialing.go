// Package bubbled is what tests in testing/synctest bubbles have in common.
package bubbled

import (
	"context"
	"net"

	"google.golang.org/grpc/test/bufconn"
)

// Dialing makes the connections of a bubble, one at a time. In Go 1.26 timers of one bubble that are due as they are made, of which a
// connection has four, bring the race detector down where two goroutines make them at once. It is held by who dials, and may be used in the bubble
// alone in which it was made.
type Dialing chan struct{}

// NewDialing returns what all that dial in a bubble share, whichever server they dial.
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
