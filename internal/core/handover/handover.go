// Package handover lets a server that decides many requests on one goroutine hand over to another
// before a decision waits. It is between pkg/client and this repository's own doors.
package handover

import "context"

type key struct{}

// BeforeWait returns a context under which a decision calls f before it waits for the server, or for its turn.
// It calls f once, on the goroutine that asks, after the attributes were copied. A decision that does not wait
// does not look at it.
func BeforeWait(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, key{}, f)
}

// Of returns what decisions under a context call before they wait; nil for nothing.
func Of(ctx context.Context) func() {
	f, _ := ctx.Value(key{}).(func())
	return f
}
