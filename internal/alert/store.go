package alert

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/policy/terms"
)

// Marks say how far everything has been looked at. They only save work: a second look makes no second event.
type Marks struct {
	Height  int64 // blocks up to it; -1 where nothing was ever looked at
	Change  int64 // changes of tenants up to it
	Version int64 // the policy that all tenants were, or are being, looked at under
	Audit   int64 // rows of the audit log up to it
	// Sweeping is set while all tenants are looked at. Tenants up to Sweep are done.
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

// Found is the events and the cap found for a tenant.
type Found struct {
	Tenant string
	Events []Event       // of the tenant
	Capped *terms.Capped // what its cap holds from now on; nil where nothing changes
}

// Store keeps events, deliveries and marks, beside the policy and its audit log. All servers share it. It is safe for
// concurrent use, and changes are serialized with the policy's. Errors are policystore's.
type Store interface {
	Marks(ctx context.Context) (Marks, error)
	SetMarks(ctx context.Context, m Marks) error
	// Audited is the number of the newest row of the audit log. A reader that saw this row has seen every change of an
	// administrator.
	Audited(ctx context.Context) (int64, error)

	// Raise keeps those of tenants' events that are not there yet, in their order, each with its deliveries, and
	// returns them. A change of a tenant's cap is audited. All is one transaction; ErrNotFound without a tenant whose
	// cap changes.
	Raise(ctx context.Context, found []Found) ([]Event, error)
	// Capped returns tenants with ids above after that reached a cap.
	Capped(ctx context.Context, after string, n int) ([]CappedTenant, error)

	// OwnCaps reports whether any tenant has a cap of its own.
	OwnCaps(ctx context.Context) (bool, error)

	// Events pages through events, without their deliveries.
	Events(ctx context.Context, q Query) ([]Event, error)
	// Event is an event with its deliveries; ErrNotFound without it.
	Event(ctx context.Context, number int64) (Event, error)

	// Claim returns a webhook's deliveries that are due, in the order of their events, and puts each off until a time.
	// If the server that claimed one is gone by then, it is tried again. During an outage Claim returns one delivery at
	// its time, of those with the fewest attempts.
	Claim(ctx context.Context, webhook string, now, until time.Time, n int) ([]Delivery, error)
	// Tried keeps the outcome of an attempt, if nobody has claimed the delivery since.
	Tried(ctx context.Context, claimed time.Time, d Delivery) error
	// Untried gives a delivery back that was claimed and not tried, if nobody has claimed it since. It is due again,
	// and no attempt counts.
	Untried(ctx context.Context, claimed time.Time, d Delivery) error
	// Failing notes that a webhook failed once more, and returns its outage. After OutageAfter failures in a row,
	// deliveries wait.
	Failing(ctx context.Context, webhook string, at time.Time, why string) (Outage, error)
	// Working ends a webhook's outage, if there is one. Deliveries that waited are due, and keep the time they had
	// left.
	Working(ctx context.Context, webhook string, at time.Time) error
	// Outages are those of webhooks whose deliveries wait.
	Outages(ctx context.Context) ([]Outage, error)

	// Retry starts deliveries of an event again that are dead or wait; an empty webhook means all. ErrNotFound without
	// the event, ErrInvalid where nothing is to be tried.
	Retry(ctx context.Context, actor string, number int64, webhook string) (Event, error)
	// Orphan ends deliveries to unknown webhooks that have waited since before a time, and returns how many.
	Orphan(ctx context.Context, known []string, before time.Time, why string) (int64, error)
	// Count is how many deliveries wait, and how many are dead.
	Count(ctx context.Context) (pending, dead int64, err error)
}

// CappedTenant is a tenant that reached its cap.
type CappedTenant struct {
	ID string
	terms.Capped
}

// Outage says that a webhook fails.
type Outage struct {
	Webhook  string
	Failures int64     // one after another
	Open     time.Time // since when deliveries wait; zero while they do not
	Next     time.Time // when one is tried next
	Error    string    // of the last failure
}

const (
	// OutageAfter is how many failures in a row make deliveries wait.
	OutageAfter = 3
	// probeMost bounds the wait between attempts during an outage. A webhook that works again is told of waiting events
	// at most that much later.
	probeMost = 5 * time.Minute
)

// Probe is when to try a webhook again after so many failures.
func Probe(at time.Time, failures int64) time.Time {
	return at.Add(min(retryFirst<<min(max(failures-1, 0), 20), probeMost))
}
