package alert

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/policy/terms"
)

// Marks are how far all has been looked at. They only spare work: whatever is looked at
// again makes no event again.
type Marks struct {
	Height  int64 // blocks up to it; -1 where nothing was ever looked at
	Change  int64 // changes of tenants up to it
	Version int64 // the policy that all tenants were, or are being, looked at under
	Audit   int64 // rows of the audit log up to it
	// Sweeping is set while all tenants are looked at, those up to Sweep having been.
	Sweeping bool
	Sweep    string
}

// Query selects events; what is empty selects all.
type Query struct {
	Before  int64 // numbers below it, newest first
	After   int64 // with Forward, numbers above it, oldest first
	Forward bool
	N       int
	Tenant  string
	Alert   string
	State   string // with a delivery in this state
}

// Found is what there is to tell of a tenant.
type Found struct {
	Tenant string
	Events []Event       // of the tenant
	Capped *terms.Capped // what its cap holds from now on; nil where nothing changes
}

// Store keeps events, deliveries and marks, beside the policy and its audit log. All servers
// share it; it is safe for concurrent use, and changes are serialized with the policy's.
// Errors are policy's.
type Store interface {
	Marks(ctx context.Context) (Marks, error)
	SetMarks(ctx context.Context, m Marks) error
	// Audited is the number of the newest row of the audit log: what has it is what an
	// administrator could have changed.
	Audited(ctx context.Context) (int64, error)

	// Raise keeps those of tenants' events that are not there yet, in their order, each with
	// its deliveries, and returns them. What holds of a tenant's cap from now on, where that
	// was found, is audited where it changes. All is one transaction; ErrNotFound without a
	// tenant whose cap that would be.
	Raise(ctx context.Context, found []Found) ([]Event, error)
	// Capped returns tenants after one, by id, that reached a cap.
	Capped(ctx context.Context, after string, n int) ([]CappedTenant, error)

	// OwnCaps reports whether any tenant has a cap of its own.
	OwnCaps(ctx context.Context) (bool, error)

	// Events pages through what was told; without deliveries.
	Events(ctx context.Context, q Query) ([]Event, error)
	// Event is one with its deliveries; ErrNotFound without it.
	Event(ctx context.Context, number int64) (Event, error)

	// Claim returns a webhook's deliveries that are due, in the order of their events, and
	// puts each off until a time: whoever claimed it and is gone then has it tried again. During
	// an outage that is one at its time, of those with the fewest attempts.
	Claim(ctx context.Context, webhook string, now, until time.Time, n int) ([]Delivery, error)
	// Tried keeps what became of an attempt, if nobody has claimed the delivery since.
	Tried(ctx context.Context, claimed time.Time, d Delivery) error
	// Untried gives a delivery back that was claimed and not tried, if nobody has claimed it
	// since: it is due, and no attempt counts.
	Untried(ctx context.Context, claimed time.Time, d Delivery) error
	// Failing notes that a webhook failed once more, and returns its outage: from OutageAfter
	// failures on, one after another, deliveries wait.
	Failing(ctx context.Context, webhook string, at time.Time, why string) (Outage, error)
	// Working ends a webhook's outage, if there is one: what waited is due, and has its time yet.
	Working(ctx context.Context, webhook string, at time.Time) error
	// Outages are of the webhooks whose deliveries wait.
	Outages(ctx context.Context) ([]Outage, error)

	// Retry begins deliveries of an event anew, to all webhooks where it is empty: those
	// that are dead or wait. ErrNotFound without the event, ErrInvalid where nothing is to
	// be tried.
	Retry(ctx context.Context, actor string, number int64, webhook string) (Event, error)
	// Orphan ends what has waited since before a time for other webhooks than these, and
	// returns how many those were.
	Orphan(ctx context.Context, known []string, before time.Time, why string) (int64, error)
	// Count is how many deliveries wait, and how many are dead.
	Count(ctx context.Context) (pending, dead int64, err error)
}

// CappedTenant is a tenant that reached its cap.
type CappedTenant struct {
	ID string
	terms.Capped
}

// Outage is that a webhook fails.
type Outage struct {
	Webhook  string
	Failures int64     // one after another
	Open     time.Time // since when deliveries wait; zero while they do not
	Next     time.Time // when one is tried next
	Error    string    // of the last failure
}

const (
	// OutageAfter is after how many failures deliveries wait.
	OutageAfter = 3
	// probeMost bounds the wait between attempts during an outage: so much later than it
	// works again is a webhook told of what waited.
	probeMost = 5 * time.Minute
)

// Probe is when to try a webhook again after so many failures.
func Probe(at time.Time, failures int64) time.Time {
	return at.Add(min(retryFirst<<min(max(failures-1, 0), 20), probeMost))
}
