package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// compiler turns one written limit into a limit, and collects its faults.
type compiler struct {
	s     *LimitSpec
	at    place
	given map[string]bool
	l     limit.Limit
	// shaped is false where algorithm, rate and slots do not make a limit. Keys that depend on them are then not
	// judged, because that would only repeat the fault.
	shaped   bool
	problems []problem
}

func (c *compiler) bad(key, format string, args ...any) {
	c.problems = append(c.problems, problem{key, fmt.Sprintf(format, args...)})
}

// compile turns a written limit into a limit, and returns all its faults.
func (s *LimitSpec) compile(at place) (limit.Limit, []problem) {
	c := &compiler{s: s, at: at, given: s.given(), shaped: true}
	c.l = limit.Limit{Algorithm: limit.TokenBucket, EpsilonPPM: limit.DefaultEpsilonPPM}
	if at.base != nil {
		c.l = *at.base
	}
	c.l.Name = s.Name
	if s.Name == terms.CapName {
		// A limit of this name would replace the cap's limit and its meter, or stand beside it under one name.
		c.bad("name", "spending_cap is reserved for the limit that a spending cap throttles by; choose another name")
	}
	c.requests()
	c.shape()
	if c.shaped && c.l.CountsOnly() {
		c.countsOnly()
		return c.l, c.problems
	}
	c.refuse()
	c.burst()
	c.zone()
	c.outage()
	c.enforce()
	c.options()
	c.variants()
	return c.l, c.problems
}

// requests compiles which requests the limit holds, its `by` attributes, its cost, and its meter.
func (c *compiler) requests() {
	s, l := c.s, &c.l
	if s.Match != nil {
		l.Match = c.conditions("match", s.Match)
	}
	if s.By != nil {
		l.By = nil
		seen := make(map[string]bool)
		for _, by := range s.By {
			if err := limit.Check(nil, []string{by}); err != nil {
				c.bad("by", "%v", err)
				continue
			}
			if seen[by] {
				c.bad("by", "by names %s twice", by)
				continue
			}
			seen[by] = true
			if by == limit.AttrTenant && !c.at.top {
				continue // a plan's limit always counts by tenant
			}
			l.By = append(l.By, by)
		}
		if len(l.By) > limit.MaxBy {
			c.bad("by", "by has %d attributes; at most %d are allowed", len(l.By), limit.MaxBy)
		}
	}
	c.cost()
	if s.Meter != "" {
		l.Meter = s.Meter
	}
	if c.at.top && l.Meter != "" && !slices.Contains(l.By, limit.AttrTenant) {
		c.bad("meter", "a meter belongs to a tenant: a metered limit of the top level must have tenant in its by")
	}
}

func (c *compiler) conditions(key string, written map[string][]string) []limit.Match {
	if len(written) > limit.MaxMatch {
		c.bad(key, "%s has %d conditions; at most %d are allowed", key, len(written), limit.MaxMatch)
	}
	var all []limit.Match
	for _, attribute := range sortedKeys(written) {
		m := limit.Match{Attribute: attribute, Patterns: written[attribute]}
		if err := limit.Check([]limit.Match{m}, nil); err != nil {
			c.bad(key+"."+attribute, "%v", err)
		}
		all = append(all, m)
	}
	return all
}

var algorithms = []limit.Algorithm{
	limit.TokenBucket, limit.LeakyBucket, limit.FixedWindow, limit.SlidingWindow, limit.SlidingWindowLog, limit.Concurrency,
}

// shape compiles the algorithm, and its rate or slots.
func (c *compiler) shape() {
	s, l := c.s, &c.l
	if s.Algorithm != "" {
		known := false
		for _, a := range algorithms {
			if s.Algorithm == a.String() {
				l.Algorithm, known = a, true
			}
		}
		if !known {
			c.bad("algorithm", "%s is not an algorithm; allowed are token_bucket, leaky_bucket, fixed_window, sliding_window, sliding_window_log and concurrency", limit.Quote(s.Algorithm))
			c.shaped = false
		}
	}
	if s.Rate != "" && (l.Algorithm != limit.Concurrency || !c.shaped) {
		r, err := limit.ParseRate(s.Rate)
		if err != nil {
			c.bad("rate", "%v", err)
			c.shaped = false
		} else {
			l.Rate = r
		}
	}
	if !c.shaped {
		return
	}
	if l.Algorithm == limit.Concurrency {
		l.Rate = limit.Rate{}
		if s.Slots != nil {
			l.Slots = *s.Slots
		}
		if l.Slots == 0 {
			c.bad("algorithm", "a concurrency limit needs slots: how many units may be in flight at once, such as slots: 50")
			c.shaped = false
		}
		l.Cost = limit.Weighing{}
		if s.Cost != nil {
			c.bad("cost", "the slots of a concurrency limit are of requests; leave cost out, or give it to a limit with a rate beside this one")
		}
		if l.Meter != "" {
			c.bad("meter", "a concurrency limit feeds no meter: it counts what is in flight, not what was used; meter %s with a limit of its own (no rate: it only counts)", l.Meter)
		}
		return
	}
	l.Slots = 0
	if s.Slots != nil && l.CountsOnly() {
		c.bad("slots", "slots need algorithm: concurrency")
		c.shaped = false
		return
	}
	if what := rateProblem(l.Algorithm, l.Rate); what != "" {
		c.bad("rate", "%s", what)
	}
}

// rateProblem says why an algorithm cannot work at a rate; empty if it can.
func rateProblem(a limit.Algorithm, r limit.Rate) string {
	long := r.Calendar >= limit.Month
	switch {
	case a == limit.TokenBucket && long:
		return fmt.Sprintf("a token bucket fills evenly, and a %s has no fixed length; use algorithm: fixed_window, or a duration such as 720h", r.Calendar)
	case a == limit.LeakyBucket && long:
		return fmt.Sprintf("a leaky bucket drains evenly, and a %s has no fixed length; use a duration such as 720h", r.Calendar)
	case (a == limit.SlidingWindow || a == limit.SlidingWindowLog) && long:
		return fmt.Sprintf("a sliding window has a fixed length, and a %s has none; use algorithm: fixed_window, or a duration such as 720h", r.Calendar)
	case (a == limit.FixedWindow || a == limit.SlidingWindow) && r.Per%time.Millisecond != 0:
		return fmt.Sprintf("the windows of a %s must be whole milliseconds, not %s", a, r.Per)
	case a == limit.SlidingWindowLog && r.Units > limit.MaxLog:
		return fmt.Sprintf("a sliding_window_log keeps the time of each unit, so it has at most %d; use algorithm: sliding_window for %d", limit.MaxLog, r.Units)
	}
	return ""
}

// capacity is the most units that a bucket of the limit can hold.
func capacity(l *limit.Limit) int64 {
	switch {
	case l.Slots > 0:
		return l.Slots
	case l.Burst > 0:
		return l.Burst
	}
	return l.Rate.Units
}

// countsOnly checks a limit without a rate: it feeds a meter and never denies.
func (c *compiler) countsOnly() {
	l := &c.l
	if l.Meter == "" {
		c.bad("", "it has neither a rate nor a meter, so it would do nothing; give it a rate such as 100/hour, or a meter to count for")
	}
	for _, key := range sortedKeys(c.given) {
		c.bad(key, "%s needs a rate: a limit without one only counts", key)
	}
	// Anything that an override inherits of a rate's shape is void with it.
	c.l = limit.Limit{
		Name: l.Name, Match: l.Match, By: l.By, Cost: l.Cost, Meter: l.Meter, Algorithm: limit.TokenBucket, EpsilonPPM: limit.DefaultEpsilonPPM,
	}
}

// without says which keys an algorithm has no use for, and why. An override that changes the algorithm drops the plan's
// values of these keys.
var without = map[limit.Algorithm]map[string]string{
	limit.TokenBucket:      {"slots": noSlots, "queue": noQueue, "wait": noQueue, "on_change": noChange},
	limit.LeakyBucket:      {"slots": noSlots, "borrow": "a leaky bucket paces, and borrowing would let a crowd through; give it a burst instead", "on_change": noChange},
	limit.FixedWindow:      {"slots": noSlots, "queue": noQueue, "wait": noQueue, "burst": "a fixed window has no burst: it admits its units anew in each window"},
	limit.SlidingWindow:    {"slots": noSlots, "queue": noQueue, "wait": noQueue, "burst": noBurst, "on_change": noChange},
	limit.SlidingWindowLog: {"slots": noSlots, "queue": noQueue, "wait": noQueue, "burst": noBurst, "on_change": noChange, "borrow": "a sliding_window_log is exact, and lends nothing", "epsilon": exact},
	limit.Concurrency: {
		"rate":        "a concurrency limit has slots and no rate: it bounds what is in flight, not what comes; give the rate to a limit beside it",
		"burst":       "a concurrency limit has no burst: its slots are all there is",
		"borrow":      "slots are not lent: what is in flight at once never exceeds them",
		"lockout":     "a concurrency limit has no lockout: a slot is free again as soon as a request ends",
		"on_change":   noChange,
		"epsilon":     exact,
		"enforcement": "the slots of a concurrency limit are exact; leave enforcement out",
		"overage":     "a concurrency limit has no overage; give it more slots",
		"first_touch": "the slots of a concurrency limit are exact, and none are given on credit",
	},
}

const (
	noSlots  = "slots are a concurrency limit's; use algorithm: concurrency, or leave them out"
	noQueue  = "only a leaky_bucket and a concurrency limit let requests wait their turn in a queue"
	noBurst  = "a sliding window has no burst: in any window it admits its units"
	noChange = "only a fixed_window has windows that a change can come in the middle of"
	exact    = "this algorithm is exact: it has no epsilon"
)

// refuse reports keys that the algorithm has no use for, and drops values that an override inherited.
func (c *compiler) refuse() {
	if !c.shaped {
		return
	}
	l := &c.l
	for _, key := range sortedKeys(without[l.Algorithm]) {
		if c.given[key] {
			c.bad(key, "%s", without[l.Algorithm][key])
			delete(c.given, key)
		}
		switch key {
		case "queue":
			l.Queue = 0
		case "wait":
			l.Wait = 0
		case "burst":
			l.Burst = 0
		case "borrow":
			l.Borrow = 0
		case "lockout":
			l.Lockout = 0
		case "on_change":
			l.OnChange = limit.ChangeKeep
		case "enforcement":
			l.Enforcement = limit.Hard
		case "overage":
			l.OveragePPM = 0
		case "first_touch":
			l.FirstTouch = limit.TouchCredit
		}
	}
}

// burst compiles the burst. By default a token bucket holds one period's units, and a leaky bucket one unit. An
// override of the rate alone keeps the proportion of the plan's token bucket.
func (c *compiler) burst() {
	s, l, base := c.s, &c.l, c.at.base
	switch {
	case c.shaped && l.Algorithm != limit.TokenBucket && l.Algorithm != limit.LeakyBucket:
	case s.Burst != nil:
		l.Burst = *s.Burst
	case !c.shaped:
	case l.Algorithm == limit.LeakyBucket:
		if base == nil || base.Algorithm != limit.LeakyBucket || l.Burst == 0 {
			l.Burst = 1
		}
	case base == nil || base.Algorithm != limit.TokenBucket || base.CountsOnly():
		l.Burst = l.Rate.Units
	case s.Rate != "":
		l.Burst = grown(base, l.Rate)
		if l.Burst > limit.MaxUnits {
			c.bad("rate", "with the plan's burst of %d for %s the burst would be %d; give a burst of at most %d", base.Burst, base.Rate, l.Burst, int64(limit.MaxUnits))
		}
	}
}

// grown is a token bucket's burst for another rate, in the same proportion. Both factors are at most MaxUnits, so the
// product fits.
func grown(of *limit.Limit, r limit.Rate) int64 {
	return max(1, (of.Burst*r.Units+of.Rate.Units/2)/of.Rate.Units)
}

func (c *compiler) zone() {
	s, l := c.s, &c.l
	if s.Zone != "" {
		if _, err := limit.LoadZone(s.Zone); err != nil {
			c.bad("zone", "%v", err)
			return
		}
	}
	if !c.shaped {
		return
	}
	zoned := l.Algorithm == limit.FixedWindow && l.Rate.Calendar.Zoned()
	switch {
	case !zoned && s.Zone != "":
		c.bad("zone", "a time zone matters only to a fixed_window of days, weeks, months or years; leave it out")
	case !zoned:
		l.Zone = ""
	case s.Zone != "":
		l.Zone = canonicalZone(s.Zone)
	case l.Zone == "":
		l.Zone = c.at.zone
	}
}

// canonicalZone is empty for UTC, so that it compares equal to no zone at all.
func canonicalZone(z string) string {
	if z == "UTC" {
		return ""
	}
	return z
}

func (c *compiler) outage() {
	switch c.s.OnOutage {
	case "":
	case limit.OutageFallback.String():
		c.l.OnOutage = limit.OutageFallback
	case limit.OutageOpen.String():
		c.l.OnOutage = limit.OutageOpen
	case limit.OutageClosed.String():
		c.l.OnOutage = limit.OutageClosed
	default:
		c.bad("on_outage", "on_outage is %s; allowed are fallback, open and closed", limit.Quote(c.s.OnOutage))
	}
}
