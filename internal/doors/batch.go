package doors

import (
	"context"
	"sync"

	"github.com/f4ee788f/quota/internal/core/handover"
	"github.com/f4ee788f/quota/pkg/client"
)

// batch is the requests of one call, each decided by itself. One goroutine decides them in their order. Before a
// request waits for the server, it makes another goroutine go on with the rest. So a batch waits as long as its slowest
// request, and costs no goroutine where nothing waits.
type batch struct {
	client    Decider
	ctx       context.Context
	requests  []client.Request
	decisions []client.Decision
	waiting   sync.WaitGroup
}

// decideAll returns a decision for each request.
func decideAll(ctx context.Context, c Decider, requests []client.Request) []client.Decision {
	b := batch{client: c, ctx: ctx, requests: requests, decisions: make([]client.Decision, len(requests))}
	b.from(0)
	b.waiting.Wait()
	return b.decisions
}

// from decides request i and those after it, up to the first that waits.
func (b *batch) from(i int) {
	parted := false
	ctx := handover.BeforeWait(b.ctx, func() {
		if !parted {
			parted = true
			next := i + 1
			b.waiting.Go(func() { b.from(next) })
		}
	})
	for ; i < len(b.requests) && !parted; i++ {
		b.decisions[i] = b.client.Decide(ctx, b.requests[i])
	}
}
