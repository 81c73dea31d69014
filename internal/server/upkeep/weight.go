package upkeep

import (
	"context"
	"log/slog"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/rpc"
)

const (
	// keyAfter is how long after its key's end an epoch still holds usage back. An agent that was given a successor key
	// has reported under it by then, and no server takes reports under the old one.
	keyAfter = time.Minute
	// keySweep is how often a server looks for such epochs. Any server may; the second finds none.
	keySweep = time.Minute
)

// Weights ends the weight of epochs whose key was revoked: their agents can report no more, and usage is
// complete without them. One that comes back under another key has its weight again.
type Weights struct {
	books ledger.Books
	log   *slog.Logger
}

// NewWeights returns the sweep over books.
func NewWeights(books ledger.Books, log *slog.Logger) *Weights { return &Weights{books, log} }

// Run looks now and then until ctx ends.
func (w *Weights) Run(ctx context.Context) {
	tick := time.NewTicker(keySweep)
	defer tick.Stop()
	for {
		n, err := w.books.LoseKeys(ctx, rpc.Actor, keyAfter)
		if n > 0 {
			w.log.Warn("agents whose keys were revoked hold no usage back any more; the audit log names them", "epochs", n)
		}
		if err != nil && ctx.Err() == nil {
			w.log.Warn("whose keys were revoked could not be looked up; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
