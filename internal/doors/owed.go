package doors

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

const (
	// maxOwed bounds the bytes of the reports that wait to be booked, and maxOwedOf those of one tenant. A tenant whose
	// buckets have no room must not take the place of all others.
	maxOwed   = 16 << 20
	maxOwedOf = maxOwed / 8
	// owedEvery is how often they are tried again.
	owedEvery = time.Second
)

// owed holds reports of usage that could not be booked yet. The agent may not know the tenant while the server is away,
// or may have no room for another bucket. Envoy does not send reports again.
type owed struct {
	client  EnvoyClient
	metrics *Metrics
	log     *slog.Logger

	// blind is the number of calls that came while no policy was known, and were not logged yet. Nobody can say which
	// of them were reports.
	blind atomic.Int64

	booking sync.Mutex // one at a time

	mu    sync.Mutex
	calls []owedCall     // the oldest first, but those that are being booked
	bytes map[string]int // of all that is owed, by tenant; "" for all
}

// owedCall is one call's reports.
type owedCall struct {
	reports []client.Request
	tenant  string
	bytes   int
}

func owedOf(reports []client.Request) owedCall {
	c := owedCall{reports: reports, tenant: tenantOf(reports[0])}
	for _, r := range reports {
		c.bytes += 64
		for _, a := range r.Attributes {
			c.bytes += 32 + len(a.Name) + len(a.Value)
		}
	}
	return c
}

func tenantOf(r client.Request) string {
	for _, a := range r.Attributes {
		if a.Name == limit.AttrTenant {
			return a.Value
		}
	}
	return "(none)"
}

// keep keeps a call's reports, and reports whether there was room.
func (o *owed) keep(reports []client.Request) bool {
	c := owedOf(reports)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes[""]+c.bytes > maxOwed || o.bytes[c.tenant]+c.bytes > maxOwedOf {
		return false
	}
	if o.bytes == nil {
		o.bytes = make(map[string]int)
	}
	o.bytes[""] += c.bytes
	o.bytes[c.tenant] += c.bytes
	o.calls = append(o.calls, c)
	return true
}

// paid forgets a call that was booked.
func (o *owed) paid(c owedCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes[""] -= c.bytes
	if o.bytes[c.tenant] -= c.bytes; o.bytes[c.tenant] == 0 {
		delete(o.bytes, c.tenant)
	}
}

// book tries each call once, for owedEvery in all. Those that cannot be booked yet go behind those that were not tried.
func (o *owed) book(ctx context.Context) {
	o.booking.Lock()
	defer o.booking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, owedEvery)
	defer cancel()
	o.mu.Lock()
	calls := o.calls
	o.calls = nil
	o.mu.Unlock()
	var again []owedCall
	for len(calls) > 0 && ctx.Err() == nil {
		c := calls[0]
		calls = calls[1:]
		err := o.client.Book(ctx, c.reports...)
		if later(err) {
			again = append(again, c)
			continue
		}
		if err != nil {
			o.lost(err, c.reports...)
		}
		o.paid(c)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = slices.Concat(calls, again, o.calls)
}

// later reports whether a report that could not be booked may be booked later.
func later(err error) bool {
	var why *client.NotBookedError
	return errors.As(err, &why) && (why.Reason == client.ReasonUnknown || why.Reason == client.ReasonOverloaded)
}

// lost logs what is lost, a line for each tenant, so that an operator can bring it in by hand.
func (o *owed) lost(why error, reports ...client.Request) {
	units := make(map[string]int64)
	for _, r := range reports {
		units[tenantOf(r)] += *hitsIn(&r)
		o.metrics.count(doorEnvoy, resultLost)
	}
	for tenant, n := range units {
		o.log.Error("usage that Envoy reported is lost", "tenant", tenant, "units", n, "error", why)
	}
}

// sayBlind logs how many calls came while no policy was known. It writes one line for all, because until then each
// request of Envoy's is such a call.
func (o *owed) sayBlind() {
	if n := o.blind.Swap(0); n > 0 {
		o.log.Error("no policy is known, so that usage reported in Envoy's calls is lost", "calls", n)
	}
}

// run tries until ctx ends.
func (o *owed) run(ctx context.Context) {
	tick := time.NewTicker(owedEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			o.sayBlind()
			o.book(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// errEnded says why reports still owed at the end are lost.
var errEnded = errors.New("it could not be booked before the agent ended")

// end tries once more, and logs what is lost.
func (o *owed) end() {
	o.sayBlind()
	o.book(context.Background())
	o.mu.Lock()
	defer o.mu.Unlock()
	var left []client.Request
	for _, c := range o.calls {
		left = append(left, c.reports...)
	}
	o.lost(errEnded, left...)
}
