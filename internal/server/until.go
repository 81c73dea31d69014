package server

import "context"

// until returns a context that also ends when the server begins to stop, which long work
// must not hold up. cancel is to be called when the work is over.
func until(ctx context.Context, stopping <-chan struct{}) (context.Context, context.CancelFunc) {
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
