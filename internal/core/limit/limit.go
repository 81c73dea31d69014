package limit

import (
	"slices"
	"time"
)

// Micro is how many micro-tokens make a token. Tokens and units are whole;
// rates and levels are kept in micro-tokens, below 2^53 so that doubles
// hold them exactly.
const Micro = 1_000_000

// Bounds of what a policy may say and a request may carry. They are stated in
// the protocol and enforced on both sides of it.
const (
	MaxNameLen      = 64            // bytes of a limit's, plan's, meter's or attribute's name
	MaxTenantLen    = 128           // bytes of a tenant id
	MaxAgentLen     = 128           // bytes of an agent id
	MaxValueLen     = 256           // bytes of an attribute's value
	MaxBy           = 8             // attributes that tell a limit's buckets apart, the tenant not counted
	MaxMatch        = 8             // conditions of a limit
	MaxPatterns     = 64            // patterns of a condition
	MaxTopLimits    = 256           // limits at a policy's top level
	MaxPlanLimits   = 64            // limits of a plan, and overrides of a tenant
	MaxPlans        = 256           // plans of a policy
	MaxTenantLevels = 8             // tenants from a request's tenant to its root, both counted
	MaxPerRequest   = 64            // limits that one request may meet
	MaxUnits        = 1_000_000_000 // units of a rate, of a burst, and of one request's cost
	MaxLog          = 1_000         // units of a sliding window log: the store keeps the time of each
	MaxQueue        = 10_000        // requests that wait their turn in one agent's copy of a bucket
	MaxVariants     = 16            // of a limit
	// Units a second of any rate: in micro-tokens below 2^53. So is what windows are spread by.
	MaxFlow       = 1_000_000_000
	MaxBooked     = 1000 * MaxUnits // that a limit makes of one request which happened already
	MaxWait       = time.Hour       // that a request waits its turn
	MaxHold       = time.Hour       // that a silent agent's share is kept
	MaxOveragePPM = 1000 * Micro    // a thousand times the limit
)

// Algorithm is how a limit turns a rate into decisions.
type Algorithm uint8

const (
	TokenBucket Algorithm = iota + 1
	FixedWindow
	LeakyBucket
	SlidingWindow
	SlidingWindowLog
	Concurrency
)

// Outage is what happens to a bucket without a live lease while the server is away.
type Outage uint8

const (
	OutageFallback Outage = iota // it goes on with its part of the rate; where it has none, deny
	OutageOpen                   // admit, and count
	OutageClosed                 // deny
)

// Enforcement is how strictly a limit holds.
type Enforcement uint8

const (
	Hard   Enforcement = iota // deny above the limit, within epsilon
	Strict                    // epsilon is zero
	Soft                      // admit above the limit, counted as overage
)

// FirstTouch is what becomes of a bucket's first requests on an agent, before it has a lease.
type FirstTouch uint8

const (
	TouchCredit FirstTouch = iota // one unit is admitted on credit, where epsilon has room for every agent's; else as TouchAsk
	TouchAsk                      // they wait for the lease: one round trip
	TouchAdmit                    // some units are admitted on credit, whatever the limit
)

// OnChange is what becomes of a window under way when the limit changes.
type OnChange uint8

const (
	ChangeKeep    OnChange = iota // what was used stays used; the new limit holds for the whole window
	ChangeProrate                 // the old limit holds for the part that is over, the new one for the rest
)

// Variant is a limit as a stable share of the tenants has it.
type Variant struct {
	Name     string
	SharePPM int64 // of all tenants, parts per million
	Rate     Rate  // zero: the limit's
	Burst    int64 // 0: the limit's
	Slots    int64 // 0: the limit's
}

// DefaultEpsilonPPM is the allowed relative error of a limit that names none: 5 %.
const DefaultEpsilonPPM = 50_000

// Limit is one rule: which requests it holds, the attributes that tell its buckets apart, and how many units a
// bucket lets through.
type Limit struct {
	Name        string
	Match       []Match  // all must hold
	By          []string // attributes that tell buckets apart; a plan's limit has the tenant besides
	Algorithm   Algorithm
	Rate        Rate     // zero for a limit that only counts
	Burst       int64    // units that may pile up centrally; 0 for windows, logs and slots
	Cost        Weighing // what its units are of; the zero value counts requests
	Meter       string   // the meter it feeds; empty for none
	Zone        string   // IANA time zone of calendar windows; empty for UTC
	OnOutage    Outage
	Enforcement Enforcement
	EpsilonPPM  int64 // allowed relative error, parts per million

	Slots        int64         // of a Concurrency limit: units in flight at once; it has no rate
	Queue        int64         // requests that may wait their turn on each agent, for LeakyBucket and Concurrency
	Wait         time.Duration // the longest that one waits its turn; 0: as long as its caller does
	OveragePPM   int64         // of a Soft limit: what it admits above itself, in millionths of it; 0 for no cap
	Borrow       int64         // units by which a bucket may be overdrawn, repaid by later refill or the next window
	Lockout      time.Duration // once exceeded, a bucket denies everything for so long; 0 for not
	Shadow       bool          // decides and counts, and never denies
	Allow        []Match       // a request that meets any of these passes the limit by
	Deny         []Match       // a request that meets any of these is denied by it outright
	Reserve      Reserve
	Variants     []Variant // of a plan's limit; together at most all tenants
	FirstTouch   FirstTouch
	FallbackHold time.Duration // how long a silent agent's share stays reserved after its lease; 0: one term
	OnChange     OnChange
}

// Reserve is the last part of a bucket, in parts per million of its capacity. Requests of a low or ordinary
// priority (AttrPriority) may not spend it.
type Reserve struct{ LowPPM, NormalPPM int64 }

// CountsOnly reports whether the limit has neither a rate nor slots, so that it never denies.
func (l *Limit) CountsOnly() bool { return l.Rate.Units == 0 && l.Slots == 0 }

// Timed reports whether a unit must be taken before its lease or window is over. It must of windows and logs, and of all
// strict limits but slots.
func (l *Limit) Timed() bool {
	switch l.Algorithm {
	case FixedWindow, SlidingWindowLog:
		return !l.CountsOnly()
	case Concurrency:
		return false
	}
	return l.EpsilonPPM == 0 && !l.CountsOnly()
}

// Like reports whether two limits differ at most in rate and burst.
func (l *Limit) Like(o *Limit) bool {
	matches := func(a, b Match) bool { return a.Attribute == b.Attribute && slices.Equal(a.Patterns, b.Patterns) }
	return l.Name == o.Name && l.Algorithm == o.Algorithm && l.Meter == o.Meter && l.Zone == o.Zone &&
		l.OnOutage == o.OnOutage && l.Enforcement == o.Enforcement && l.EpsilonPPM == o.EpsilonPPM &&
		l.Slots == o.Slots && l.Queue == o.Queue && l.Wait == o.Wait && l.OveragePPM == o.OveragePPM && l.Borrow == o.Borrow &&
		l.Lockout == o.Lockout && l.Shadow == o.Shadow && l.Reserve == o.Reserve &&
		l.FirstTouch == o.FirstTouch && l.FallbackHold == o.FallbackHold && l.OnChange == o.OnChange && l.Cost.Equal(&o.Cost) &&
		slices.Equal(l.By, o.By) && slices.Equal(l.Variants, o.Variants) &&
		slices.EqualFunc(l.Match, o.Match, matches) && slices.EqualFunc(l.Allow, o.Allow, matches) && slices.EqualFunc(l.Deny, o.Deny, matches)
}

// Windowed reports whether the limit counts in aligned windows.
func (a Algorithm) Windowed() bool { return a == FixedWindow || a == SlidingWindow }

// Plan is a named set of limits.
type Plan struct {
	Name   string
	Limits []Limit
}

// Tenant is who is limited and billed.
type Tenant struct {
	ID        string
	Exists    bool // false: the policy's default plan applies, or none
	Plan      string
	Parent    string  // empty at the top
	Overrides []Limit // replace the plan's limits of the same name, or add to them
	Revision  int64   // rises with every change
	Suspended bool    // requests are denied
	Closed    bool    // likewise, for good: it is suspended as well
	Capped    bool    // likewise, for it spent what it may in this period
}

// Gateway says how a door's words become attributes.
type Gateway struct {
	Name        string
	Domain      string            // Envoy's rate limit domain; empty for any
	Descriptors map[string]string // descriptor key, or "header:name", to attribute
	After       []string          // descriptor keys: what has such an entry tells of usage that happened already
	// Hits is the cost that a descriptor's hits are units of, by a key of an entry that it has; "" for any descriptor.
	// Without either they are requests.
	Hits map[string]string
}

// Policy is one immutable version of limits and plans.
type Policy struct {
	Version     int64
	DefaultPlan string   // for unknown tenants; empty refuses them
	Costs       []string // that requests may name, in their order; Requests is not among them
	Likely      []Likely // of costs, each once; of others the most is reserved
	Limits      []Limit  // for every tenant
	Plans       []Plan
	Gateways    []Gateway
	Slot        time.Duration // length of a usage slot: divides an hour
}

// Plan returns the plan of that name, or nil.
func (p *Policy) Plan(name string) *Plan {
	for i := range p.Plans {
		if p.Plans[i].Name == name {
			return &p.Plans[i]
		}
	}
	return nil
}

// PlanOf is the name of t's plan under p: the default plan's if t does not exist.
func (p *Policy) PlanOf(t *Tenant) string {
	if !t.Exists {
		return p.DefaultPlan
	}
	return t.Plan
}

// TenantLimits returns the limits that t holds under p: its plan's, with its overrides in place. If t does not
// exist, the default plan's. It reports false when t has no plan at all, so that its requests are refused.
func (p *Policy) TenantLimits(t Tenant) ([]Limit, bool) {
	plan := p.Plan(p.PlanOf(&t))
	if plan == nil {
		return nil, false
	}
	if len(t.Overrides) == 0 {
		return plan.Limits, true
	}
	limits := make([]Limit, 0, len(plan.Limits)+len(t.Overrides))
	limits = append(limits, plan.Limits...)
next:
	for _, o := range t.Overrides {
		for i := range limits {
			if limits[i].Name == o.Name {
				limits[i] = o
				continue next
			}
		}
		limits = append(limits, o)
	}
	return limits, true
}
