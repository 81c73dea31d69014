package view

import (
	"errors"
	"fmt"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// InForce is the policy and the switches that hold now: immutable.
type InForce struct {
	Rules    *limit.Rules     // nil before a policy is known
	Document *policy.Document // that the rules are made of: it has the prices, which agents are not told
	Shadow   *limit.Rules     // of the version that is tried beside it; nil for none
	Switches limit.Switches
	switched int64 // counts the changes of switches
	Heads    policystore.Heads
	forgot   int64 // leases granted before, Unix microseconds, the lease store may have forgotten; 0 before it was looked at
	// turn counts the changes of policy, switches and forgot; streams compare it.
	turn int64
}

// tried is the shadow's version; 0 for none.
func (f *InForce) tried() int64 {
	if f.Shadow == nil {
		return 0
	}
	return f.Shadow.Policy.Version
}

// Version is the policy's; 0 before one is known.
func (f *InForce) Version() int64 {
	if f.Rules == nil {
		return 0
	}
	return f.Rules.Policy.Version
}

// errNoPolicy says that no policy was ever applied.
var errNoPolicy = errors.New("no policy was applied yet: quotactl apply -f FILE")

// UnknownPolicy says why nothing can be answered before a policy is known.
func (v *View) UnknownPolicy() error {
	reason := errNoPolicy
	v.mu.Lock()
	if v.err != nil {
		reason = fmt.Errorf("the policy could not be read yet: %w", v.err)
	}
	v.mu.Unlock()
	return fmt.Errorf("%w: %w", fault.ErrUnavailable, reason)
}
