package client

import "time"

// Reason says why a request was allowed or denied.
type Reason uint8

const (
	ReasonLimit        Reason = iota // the limits decided: all had the units, or the one named did not
	ReasonUnlimited                  // allowed: no limit applies
	ReasonUnknown                    // decided by WithFailureMode: the policy or the tenant is not known here
	ReasonNoTenant                   // denied: the request names no tenant, and no top-level limit applies
	ReasonNoPlan                     // denied: the tenant, or an ancestor, has no plan
	ReasonSuspended                  // denied: the tenant, or an ancestor, is suspended
	ReasonSwitch                     // an operator's switch decided
	ReasonOutage                     // decided by on_outage: the server is out of contact, and no lease lasts
	ReasonDeadline                   // denied: the context, or the longest wait, ended before the answer came
	ReasonOverloaded                 // denied: the client has as many buckets, or waiting requests, as it may
	ReasonInvalid                    // denied: a cost is out of range or not known, or the tenant's id is malformed
	ReasonClosed                     // denied: the client is closed
	ReasonQueueFull                  // denied: as many requests wait their turn here as the limit lets
	ReasonQueueTimeout               // denied: its turn did not come within the limit's wait
	ReasonOverage                    // allowed above a soft limit, and counted as overage
	ReasonListed                     // denied: the request is on the limit's deny list
	ReasonPriority                   // denied: the units left are reserved for requests of a higher priority
	ReasonCapped                     // denied: the tenant, or an ancestor, has reached its spending cap
	ReasonTooLarge                   // denied: the limit never has as many units at once; RetryAfter is 0
)

var reasons = [...]string{
	"limit", "unlimited", "unknown", "no-tenant", "no-plan", "suspended",
	"switch", "outage", "deadline", "overloaded", "invalid", "closed", "queue-full", "queue-timeout",
	"overage", "listed", "priority", "spending-cap", "too-large",
}

// String returns the reason in a word, as in metrics and logs: "limit", "no-plan", "spending-cap".
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return "reason"
}

// Decision says what became of a request. It is a value of a few words, safe to copy. Its methods look up, at the time
// of the call, what only headers and logs need.
type Decision struct {
	Allowed    bool
	Reason     Reason
	RetryAfter time.Duration // how long a denied request should stay away; 0 where nothing is known, or waiting is no help

	// by is the source of the decision; nil where no limit decided. It is a bucket (*agent.Entry), a request's
	// remembered resolution (*agent.Resolution), a limit without a bucket (*limit.Held), or *origin. It is *Details if
	// the request was decided elsewhere. So a Decision is four words, handed up in registers. Copies of a large one
	// would cost as much as a map read (BenchmarkAttributes in loadtest/bench).
	by any
}

// Done says that the request has ended, and gives back its slots of concurrency limits. Call it for every allowed
// decision where such limits are used: a slot that is never given back is in use until Close. A second call, also of a
// copy of the decision, does nothing. It is safe for concurrent use.
func (d Decision) Done() {
	if by, ok := d.by.(*origin); ok && by.slots != nil {
		by.slots.giveBack()
	}
}

// Decided returns a decision that was made elsewhere: by a quota-agent, or by a test's fake of a Client.
func Decided(allowed bool, reason Reason, retryAfter time.Duration, of Details) Decision {
	d := Decision{Allowed: allowed, Reason: reason, RetryAfter: retryAfter}
	if of.Limit != "" {
		d.by = &of
	}
	return d
}

// Limit returns the name of the limit that decided, empty where none did; see Details.
func (d Decision) Limit() string { return d.Details().Limit }
