package rpc

import (
	"context"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
)

// ErrStopping ends a stream because the server does.
var ErrStopping = fmt.Errorf("%w: the server is stopping; connect again", fault.ErrUnavailable)

const (
	// Stall is how long a reader of a stream may take for a message.
	Stall = 30 * time.Second
	// ProgressEvery is how often a long call tells how far it is.
	ProgressEvery = 500 * time.Millisecond
)

// Until returns a context that also ends when the server begins to stop, so that long work does not hold that up. The
// caller calls cancel when the work is over.
func Until(ctx context.Context, stopping <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Patient bounds send: a reader may take Stall for a message, and no longer than ctx, whose cause is then the error. A
// send that takes longer runs on in the background until its handler returns, which ends the stream.
func Patient[M any](ctx context.Context, send func(M) error) func(M) error {
	return func(m M) error {
		sent := make(chan error, 1)
		go func() { sent <- send(m) }()
		late := time.NewTimer(Stall)
		defer late.Stop()
		select {
		case err := <-sent:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late.C:
			return fmt.Errorf("%w: the reader took nothing for %s", context.DeadlineExceeded, Stall)
		}
	}
}
