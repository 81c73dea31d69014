package limit

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"
	_ "time/tzdata" // every program that knows limits knows zones, on machines without a database of them too
)

var (
	// ErrNoPlan means that a tenant, or an ancestor of it, is under no plan. Either it is unknown and the
	// policy has no default, or its plan is gone. Its requests are refused.
	ErrNoPlan = errors.New("limit: tenant has no plan")
	// ErrSuspended means that a tenant, or an ancestor of it, is suspended.
	ErrSuspended = errors.New("limit: tenant is suspended")
	// ErrCapped means that a tenant, or an ancestor of it, has reached its spending cap.
	ErrCapped = errors.New("limit: tenant has reached its spending cap")
	// ErrChain means that a chain of tenants is empty, broken or too long.
	ErrChain = errors.New("limit: invalid chain of tenants")
	// ErrZone is wrapped by every error about a time zone.
	ErrZone = errors.New("is not an IANA time zone")
)

// Rule is a limit ready to match: immutable, and safe for concurrent use.
type Rule struct {
	Limit    Limit
	Location *time.Location // of its calendar windows; never nil
	match    []condition
	by       []part
	weigher  weigher
	namesake bool // it has the name of a cost
	allow    []condition
	deny     []condition
	variants []*Rule // by Limit.Variants
	overage  *Rule   // of a soft limit
}

// Compile makes l ready to match. An error wraps ErrMatch or ErrZone; what a validated policy
// holds compiles. Of all costs it knows Requests alone.
func Compile(l Limit) (*Rule, error) { return compile(l, nil) }

// compile is Compile of a limit of a policy that names costs.
func compile(l Limit, costs *Costs) (*Rule, error) {
	r := &Rule{Limit: l, Location: time.UTC, weigher: newWeigher(&l.Cost, costs), namesake: costs.index(l.Name) >= 0}
	if len(l.Match) > MaxMatch || len(l.By) > MaxBy {
		return nil, fmt.Errorf("limit %s: %w: at most %d conditions and %d attributes", Quote(l.Name), ErrMatch, MaxMatch, MaxBy)
	}
	for _, m := range l.Match {
		c, err := compileMatch(m)
		if err != nil {
			return nil, fmt.Errorf("limit %s: %w", Quote(l.Name), err)
		}
		r.match = append(r.match, c)
	}
	for _, by := range l.By {
		p, err := compilePart(by)
		if err != nil {
			return nil, fmt.Errorf("limit %s: %w", Quote(l.Name), err)
		}
		r.by = append(r.by, p)
	}
	for _, list := range []struct {
		matches []Match
		to      *[]condition
	}{{l.Allow, &r.allow}, {l.Deny, &r.deny}} {
		for _, m := range list.matches {
			c, err := compileMatch(m)
			if err != nil {
				return nil, fmt.Errorf("limit %s: %w", Quote(l.Name), err)
			}
			*list.to = append(*list.to, c)
		}
	}
	if l.Zone != "" {
		loc, err := LoadZone(l.Zone)
		if err != nil {
			return nil, fmt.Errorf("limit %s: %w", Quote(l.Name), err)
		}
		r.Location = loc
	}
	if l.soft() {
		r.overage = r.with(l.Overage())
	}
	for i := range l.Variants {
		v := r.with(l.Vary(i))
		if v.Limit.soft() {
			v.overage = v.with(v.Limit.Overage())
		}
		r.variants = append(r.variants, v)
	}
	return r, nil
}

// with returns a rule that holds the same requests in the same buckets by another limit.
func (r *Rule) with(l Limit) *Rule {
	o := *r
	o.Limit, o.variants, o.overage = l, nil, nil
	return &o
}

// Unit says what the limit's units are of: a cost, Requests among them, or the limit itself where it weighs. It is empty
// where no name fits: of slots, and of a limit that weighs and has the name of a cost.
func (r *Rule) Unit() string {
	switch cost := r.Limit.Cost.Single(); {
	case r.Limit.Slots > 0, cost == "" && r.namesake:
		return ""
	case cost != "":
		return cost
	}
	return r.Limit.Name
}

// Overage returns the rule of a soft limit's overage; nil for others.
func (r *Rule) Overage() *Rule { return r.overage }

// For returns the rule as the tenant has it: itself, or one of its variants.
func (r *Rule) For(tenant string) *Rule {
	if i := r.Limit.Variant(tenant); i >= 0 {
		return r.variants[i]
	}
	return r
}

// LoadZone returns the IANA time zone of that name. "Local" is none: it would mean
// another zone on each machine. It reads the zone database of the machine, or the
// one built into the program. An error wraps ErrZone.
func LoadZone(name string) (*time.Location, error) {
	if name == "Local" || name == "" {
		return nil, fmt.Errorf("%s %w; write one such as Europe/Berlin or UTC", Quote(name), ErrZone)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%s %w; write one such as Europe/Berlin or UTC", Quote(name), ErrZone)
	}
	return loc, nil
}

// Check reports what Compile would object to in one condition or one attribute of By.
func Check(matches []Match, by []string) error {
	_, err := Compile(Limit{Match: matches, By: by})
	return errors.Unwrap(err)
}

// Applies reports whether the request meets the limit: all its conditions hold.
// It allocates as Matcher.Match does.
func (r *Rule) Applies(attributes []Attribute) bool {
	for i := range r.match {
		if !r.match[i].holds(attributes) {
			return false
		}
	}
	return true
}

// Listing is what a limit's lists say of a request.
type Listing uint8

const (
	Unlisted  Listing = iota
	AllowedBy         // the limit does not hold the request: it takes nothing, and counts nothing
	DeniedBy          // the limit denies it, whatever is left
)

// Listed says whether one of the limit's lists has the request. Any of its conditions is enough, and the allow
// list goes before the deny list. It allocates as Matcher.Match does.
func (r *Rule) Listed(attributes []Attribute) Listing {
	for i := range r.allow {
		if r.allow[i].holds(attributes) {
			return AllowedBy
		}
	}
	for i := range r.deny {
		if r.deny[i].holds(attributes) {
			return DeniedBy
		}
	}
	return Unlisted
}

// Reserved is the last part of the bucket, in parts per million of its capacity,
// that a request of this priority may not spend.
func (r *Rule) Reserved(attributes []Attribute) int64 {
	reserve := &r.Limit.Reserve
	if *reserve == (Reserve{}) {
		return 0
	}
	switch lookup(attributes, AttrPriority) {
	case "high":
		return 0
	case "low":
		return reserve.LowPPM
	default:
		return reserve.NormalPPM
	}
}

// Values is how many values tell the limit's buckets apart, the tenant of a plan's limit not counted.
func (r *Rule) Values() int { return len(r.by) }

// AppendValue appends the i-th value that tells this request's bucket apart, at most MaxValueLen bytes. It is
// empty if the attribute is absent: such requests share one bucket rather than escape the limit. An address is
// in its shortest form (RFC 5952), so it has one bucket however it is written. It allocates only when dst has
// no room, or the value is too long or broken.
func (r *Rule) AppendValue(dst []byte, i int, attributes []Attribute) []byte {
	return r.by[i].append(dst, attributes)
}

// Window returns the window of a windowed limit that now is in.
func (r *Rule) Window(now time.Time) (start, end time.Time) {
	return r.Limit.Rate.Window(now, r.Location)
}

// Held is a limit that holds the requests of a tenant: its rule, which many tenants share, and what they may differ in.
type Held struct {
	Rule   *Rule
	Rate   Rate   // in place of the rule's
	Burst  int64  // likewise
	Tenant string // whose plan it is of: the request's tenant or an ancestor; empty at the policy's top level
	Meter  string // the meter it feeds for this tenant's requests; an ancestor's limit feeds none
}

// Hold returns the rule as it says itself, of no tenant.
func (r *Rule) Hold() Held {
	return Held{Rule: r, Rate: r.Limit.Rate, Burst: r.Limit.Burst, Meter: r.Limit.Meter}
}

// shares reports whether a tenant's own limit differs from the rule at most in rate and burst. Then the rule
// holds its requests as well. The overage of a soft limit goes by its rate, so nobody shares its rule.
func (r *Rule) shares(own *Limit) bool {
	return r.overage == nil && r.Limit.Rate.Units > 0 && own.Rate.Units > 0 && r.Limit.Like(own)
}

// alone returns a rule that says what is held by itself.
func (h *Held) alone() *Rule {
	l := h.Rule.Limit
	if h.Rate == l.Rate && h.Burst == l.Burst {
		return h.Rule
	}
	l.Rate, l.Burst = h.Rate, h.Burst
	return h.Rule.with(l)
}

// Rules is a policy ready to match: immutable, and safe for concurrent use.
type Rules struct {
	Policy *Policy
	costs  *Costs
	top    []*Rule
	plans  map[string][]*Rule
	varied map[string]bool // plans of which a limit has variants
}

// CompilePolicy makes p ready to match. p must not change afterwards.
func CompilePolicy(p *Policy) (*Rules, error) {
	r := &Rules{Policy: p, costs: NewCosts(p.Costs, p.Likely...), plans: make(map[string][]*Rule, len(p.Plans)), varied: make(map[string]bool)}
	var err error
	if r.top, err = compileAll(p.Limits, r.costs); err != nil {
		return nil, err
	}
	for i := range p.Plans {
		if r.plans[p.Plans[i].Name], err = compileAll(p.Plans[i].Limits, r.costs); err != nil {
			return nil, fmt.Errorf("plan %s: %w", Quote(p.Plans[i].Name), err)
		}
		for _, rule := range r.plans[p.Plans[i].Name] {
			if len(rule.variants) > 0 {
				r.varied[p.Plans[i].Name] = true
			}
		}
	}
	return r, nil
}

func compileAll(limits []Limit, costs *Costs) ([]*Rule, error) {
	rules := make([]*Rule, 0, len(limits))
	for _, l := range limits {
		r, err := compile(l, costs)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// Costs are the policy's. A nil Rules has none but Requests.
func (r *Rules) Costs() *Costs {
	if r == nil {
		return nil
	}
	return r.costs
}

// Top returns the rules that hold for every tenant. The slice must not be changed.
func (r *Rules) Top() []*Rule { return r.top }

// plan returns the rules of t's plan, and whether t has them as they are.
func (r *Rules) plan(t *Tenant) (rules []*Rule, same bool, err error) {
	name := r.Policy.PlanOf(t)
	rules, ok := r.plans[name]
	if !ok {
		return nil, false, fmt.Errorf("tenant %s: %w", Quote(t.ID), ErrNoPlan)
	}
	return rules, len(t.Overrides) == 0 && !r.varied[name], nil
}

// Tenant returns the rules of t's plan as t has them: its variants, and its overrides in place. Overrides have
// no variants, for they say what this tenant has.
func (r *Rules) Tenant(t Tenant) ([]*Rule, error) {
	rules, same, err := r.plan(&t)
	if err != nil || same {
		return rules, err
	}
	own, err := r.Own(t)
	if err != nil {
		return nil, err
	}
	alone := make([]*Rule, len(own))
	for i := range own {
		alone[i] = own[i].alone()
	}
	return alone, nil
}

// Own is Tenant, with the plan's own rules for all overrides that differ from them in rate and burst alone.
func (r *Rules) Own(t Tenant) ([]Held, error) {
	rules, _, err := r.plan(&t)
	if err != nil {
		return nil, err
	}
	own := make([]Held, len(rules), len(rules)+len(t.Overrides))
	for i := range rules {
		own[i] = rules[i].For(t.ID).Hold()
		own[i].Tenant = t.ID
	}
	for i := range t.Overrides {
		if own, err = r.override(own, &t, &t.Overrides[i]); err != nil {
			return nil, fmt.Errorf("tenant %s: %w", Quote(t.ID), err)
		}
	}
	return own, nil
}

// Like returns the limit of t's plan, as t has it, that is like another; nil where none is.
func (r *Rules) Like(t *Tenant, l *Limit) *Limit {
	rules, _, err := r.plan(t)
	if err != nil {
		return nil
	}
	for _, rule := range rules {
		if own := rule.For(t.ID); own.Limit.Like(l) {
			return &own.Limit
		}
	}
	return nil
}

// override puts one of t's overrides in its place.
func (r *Rules) override(own []Held, t *Tenant, o *Limit) ([]Held, error) {
	at := slices.IndexFunc(own, func(h Held) bool { return h.Rule.Limit.Name == o.Name })
	if at >= 0 && own[at].Rule.shares(o) {
		own[at].Rate, own[at].Burst = o.Rate, o.Burst
		return own, nil
	}
	rule, err := compile(*o, r.costs)
	if err != nil {
		return nil, err
	}
	h := rule.Hold()
	h.Tenant = t.ID
	if at < 0 {
		return append(own, h), nil
	}
	own[at] = h
	return own, nil
}

// Find returns the rule of that name that holds for tenant t. For a nil t it returns the policy's top-level
// rule. It is nil when there is none.
func (r *Rules) Find(t *Tenant, name string) *Rule {
	rules := r.top
	if t != nil {
		var err error
		if rules, err = r.Tenant(*t); err != nil {
			return nil
		}
	}
	for _, rule := range rules {
		if rule.Limit.Name == name {
			return rule
		}
	}
	return nil
}

// Chain returns every rule that holds for the requests of chain[0]; its ancestors follow it up to the root.
// They are the policy's top level, its own plan's and each ancestor's rules. The strictest come first, so that
// a denial is found early; those that only count come last. The result is meant to be kept with the tenant, not
// made for each request. Errors wrap ErrNoPlan, ErrSuspended, ErrCapped or ErrChain. With ErrSuspended and
// ErrCapped it still returns the limits: what was used already is counted there.
func (r *Rules) Chain(chain []Tenant) ([]Held, error) {
	if len(chain) == 0 || len(chain) > MaxTenantLevels {
		return nil, fmt.Errorf("%w: 1 to %d tenants, got %d", ErrChain, MaxTenantLevels, len(chain))
	}
	var held []Held
	var refused error
	for _, rule := range r.top {
		held = append(held, rule.Hold())
	}
	for i, t := range chain {
		parent := ""
		if i+1 < len(chain) {
			parent = chain[i+1].ID
		}
		if t.Parent != parent {
			return nil, fmt.Errorf("%w: the parent of %s is %s, got %s", ErrChain, Quote(t.ID), Quote(t.Parent), Quote(parent))
		}
		switch {
		case refused != nil:
		case t.Suspended:
			refused = fmt.Errorf("tenant %s: %w", Quote(t.ID), ErrSuspended)
		case t.Capped:
			refused = fmt.Errorf("tenant %s: %w", Quote(t.ID), ErrCapped)
		}
		own, err := r.Own(t)
		if err != nil {
			return nil, err
		}
		for _, h := range own {
			if i > 0 {
				if h.Rule.Limit.CountsOnly() {
					continue // it would neither deny nor count
				}
				h.Meter = ""
			}
			held = append(held, h)
		}
	}
	sort.SliceStable(held, func(i, j int) bool { return stricter(&held[i], &held[j]) })
	return held, refused
}

// stricter orders limits by rate per second; those of slots follow, and then those that only count.
func stricter(a, b *Held) bool {
	if a.Rule.Limit.CountsOnly() || b.Rule.Limit.CountsOnly() {
		return !a.Rule.Limit.CountsOnly() && b.Rule.Limit.CountsOnly()
	}
	if a, b := a.Rule.Limit.Slots, b.Rule.Limit.Slots; a > 0 || b > 0 {
		return b > 0 && (a == 0 || a < b)
	}
	return float64(a.Rate.Units)*float64(b.Rate.Per) < float64(b.Rate.Units)*float64(a.Rate.Per)
}
