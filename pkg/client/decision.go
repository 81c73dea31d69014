package client

import (
	"time"
)

// Reason says why a request was allowed or denied.
type Reason uint8

const (
	// ReasonLimit: the limits decided: all had a token, or the named one had none.
	ReasonLimit Reason = iota
	// ReasonUnlimited: allowed, for no limit holds this request.
	ReasonUnlimited
	// ReasonUnknown: decided by WithFailureMode, because the policy or the tenant could
	// not be learnt: the server was not reached.
	ReasonUnknown
	// ReasonNoTenant: denied, for the request names no tenant and no limit of the
	// policy's top level holds it.
	ReasonNoTenant
	// ReasonNoPlan: denied, for the tenant or an ancestor of it is under no plan.
	ReasonNoPlan
	// ReasonSuspended: denied, for the tenant or an ancestor of it is suspended.
	ReasonSuspended
	// ReasonSwitch: an operator's switch decided.
	ReasonSwitch
	// ReasonOutage: decided by the limit's on_outage, because the server is out of
	// contact and nothing is leased.
	ReasonOutage
	// ReasonDeadline: denied, for the answer did not come before the context ended
	// or the longest wait was over.
	ReasonDeadline
	// ReasonOverloaded: denied, for the client holds as many buckets or waiting
	// requests as it may.
	ReasonOverloaded
	// ReasonInvalid: denied, for the cost is out of range or the tenant's id is malformed.
	ReasonInvalid
	// ReasonClosed: denied, for the client is closed.
	ReasonClosed
	// ReasonQueueFull: denied, for as many requests wait their turn here as the limit lets.
	ReasonQueueFull
	// ReasonQueueTimeout: denied, for its turn did not come within the limit's wait.
	ReasonQueueTimeout
	// ReasonOverage: allowed, above a soft limit, and counted as overage.
	ReasonOverage
	// ReasonListed: denied, for the limit's deny list has the request.
	ReasonListed
	// ReasonPriority: denied, for what is left of the limit is reserved for requests of a
	// higher priority.
	ReasonPriority
	// ReasonCapped: denied, for the tenant or an ancestor of it has reached its spending cap.
	ReasonCapped
	// ReasonTooLarge: denied, for the request costs more than the limit ever lets through at once. RetryAfter is 0.
	ReasonTooLarge
)

var reasons = [...]string{
	"limit", "unlimited", "unknown", "no-tenant", "no-plan", "suspended",
	"switch", "outage", "deadline", "overloaded", "invalid", "closed", "queue-full", "queue-timeout",
	"overage", "listed", "priority", "spending-cap", "too-large",
}

// String returns the reason in a word, as metrics and logs have it.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return "reason"
}

// Decision is what became of a request. It is a value of a few words; the
// methods look up what only headers and logs need, at the time of the call.
type Decision struct {
	Allowed bool
	Reason  Reason
	// RetryAfter is how long a denied request should stay away; 0 when allowed, or
	// when nothing is known.
	RetryAfter time.Duration

	// by is what decided, from which the methods look up what they tell: a bucket (*agent.Entry), all of a request that
	// was known (*agent.Resolution), or else *origin; nil where no limit did. So a Decision is four words, which are
	// handed up in registers: copies of a large one cost as much as a map read (BenchmarkAttributes in loadtest/bench).
	by any
}

// Done says that the request came to its end, and gives back the slots of the
// concurrency limits that it met: whoever uses such limits calls it for every allowed
// decision. It does so once for a decision and its copies, and nothing where there
// are none. A slot that is never given back is in use until the client is closed.
func (d Decision) Done() {
	if by, ok := d.by.(*origin); ok && by.ending != nil {
		by.ending.end()
	}
}

// Details is all that a decision tells of the limit that denied, or of the tightest one that allowed: the
// one with the fewest units left, of up to four that hold the request.
type Details struct {
	Limit     string        // its name; empty where no limit decided
	Quota     int64         // units that it allows in a Window, or at once where it is of slots
	Window    time.Duration // that Quota is for
	Remaining int64         // units left, at least 0: about as many, over all gateways, less what was spent here since
	Reset     time.Duration // until the bucket is full again or its window turns
}

// Decided returns a decision that was made elsewhere: by a quota-agent, or by a test's stand-in for a Client.
func Decided(allowed bool, reason Reason, retryAfter time.Duration, of Details) Decision {
	d := Decision{Allowed: allowed, Reason: reason, RetryAfter: retryAfter}
	if of.Limit != "" {
		d.by = &of
	}
	return d
}

// Details returns what the decision tells of its limit, looked up at the time of the call.
func (d Decision) Details() Details {
	if told, ok := d.by.(*Details); ok {
		return *told
	}
	s := d.speaker()
	if s.limit == nil {
		return Details{}
	}
	t := Details{
		Limit: s.limit.Name, Quota: s.rate.Units, Window: s.rate.Per,
		Remaining: max(s.state.Remaining, s.state.Tokens, 0), Reset: time.Duration(s.state.ResetIn) * time.Microsecond,
	}
	if s.limit.Slots > 0 {
		t.Quota = s.limit.Slots
	}
	return t
}

// Limit returns the name of the limit that decided; see Details.
func (d Decision) Limit() string { return d.Details().Limit }

// Quota returns the units that the limit allows in a Window; see Details.
func (d Decision) Quota() int64 { return d.Details().Quota }

// Window returns the time that Quota is for; see Details.
func (d Decision) Window() time.Duration { return d.Details().Window }

// Remaining returns about how many units the limit has left; see Details.
func (d Decision) Remaining() int64 { return d.Details().Remaining }

// Reset returns the time until the limit has all its units; see Details.
func (d Decision) Reset() time.Duration { return d.Details().Reset }
