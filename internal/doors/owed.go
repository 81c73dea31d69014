package doors

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

const (
	// maxOwed bounds the calls whose reports wait to be booked, of some hundred bytes each.
	maxOwed = 4096
	// owedEvery is how often they are tried again.
	owedEvery = time.Second
)

// owed holds reports of usage that could not be booked yet, because the agent does not know the tenant while the server is away, or
// has no room for another bucket. Envoy does not send them again.
type owed struct {
	client EnvoyClient
	log    *slog.Logger

	mu    sync.Mutex
	calls [][]client.Request // the oldest first
}

// keep takes a call's reports, and says whether there was room.
func (o *owed) keep(reports []client.Request) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.calls) >= maxOwed {
		return false
	}
	o.calls = append(o.calls, reports)
	return true
}

func (o *owed) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.calls)
}

// book tries each once, for as long as owedEvery, and keeps what cannot be booked yet: behind those that were not tried.
func (o *owed) book(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, owedEvery)
	defer cancel()
	o.mu.Lock()
	calls := o.calls
	o.calls = nil
	o.mu.Unlock()
	var again [][]client.Request
	for len(calls) > 0 && ctx.Err() == nil {
		reports := calls[0]
		calls = calls[1:]
		err := o.client.Book(ctx, reports...)
		switch {
		case err == nil:
		case later(err):
			again = append(again, reports)
		default:
			o.log.Error("usage that Envoy reported is lost: it can never be booked", "error", err, "reports", len(reports))
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = slices.Concat(calls, again, o.calls)
}

// later reports whether what could not be booked may be some other time.
func later(err error) bool {
	var why *client.NotBookedError
	return errors.As(err, &why) && (why.Reason == client.ReasonUnknown || why.Reason == client.ReasonCrowded)
}

// run tries until ctx ends.
func (o *owed) run(ctx context.Context) {
	tick := time.NewTicker(owedEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			o.book(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// end tries once more, and says what is lost.
func (o *owed) end() {
	o.book(context.Background())
	if n := o.waiting(); n > 0 {
		o.log.Error("usage that Envoy reported is lost: it could not be booked before the end", "calls", n)
	}
}
