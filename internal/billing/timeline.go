package billing

import (
	"cmp"
	"math/big"
	"slices"
)

// Subscription says which plan a tenant had from one time to another, in Unix seconds.
// A tenant's do not overlap.
type Subscription struct {
	Plan string
	From int64
	To   int64 // 0 for the one that has not ended
}

// Version is a policy version and the prices of its plans. It is in force until the next.
type Version struct {
	Number int64
	From   int64             // Unix seconds
	Prices map[string]*Price // of all its plans; nil for one that costs nothing
}

// Usage is the sum of sealed entries of one slot, meter, policy version and plan.
type Usage struct {
	Slot    int64
	Version int64
	Plan    string // that they were admitted under; empty where that is not known: the one at the slot's beginning
	Units
	// Late is set for usage sealed above the height of the statement before, which did not have it.
	Late bool
}

// Range is a part of a period, half-open, in Unix seconds.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Term is one plan at one price within a period. A tenant that comes back to a plan at the same price continues the
// same term, so leaving and coming back gains nothing.
type Term struct {
	Tenant string  `json:"tenant,omitempty"` // as Line.Tenant
	Plan   string  `json:"plan"`             // empty for usage that no subscription was there for
	Price  string  `json:"price"`            // Price.String; empty for no price
	Ranges []Range `json:"ranges"`
	Used   []Units `json:"used"` // by meter, whether it has a price or not

	price *Price
}

// seconds is how long the term held.
func (t *Term) seconds() (n int64) {
	for _, r := range t.Ranges {
		n += r.To - r.From
	}
	return n
}

// lines are the lines of the term.
func (t *Term) lines(p Period) ([]Line, error) {
	return charge(t.Plan, t.price, big.NewRat(t.seconds(), p.Length()), t.Used)
}

// timeline says which plan and price held when, to the second.
type timeline struct {
	subscriptions []Subscription // by From
	versions      []Version      // by Number, and by From
	elsewhere     []Range        // when another paid for the tenant
	byNumber      map[int64]*Version
}

func newTimeline(in *Input) *timeline {
	t := &timeline{subscriptions: slices.Clone(in.Subscriptions), versions: slices.Clone(in.Versions), elsewhere: in.Elsewhere, byNumber: make(map[int64]*Version)}
	slices.SortStableFunc(t.subscriptions, func(a, b Subscription) int { return cmp.Compare(a.From, b.From) })
	slices.SortFunc(t.versions, func(a, b Version) int { return cmp.Compare(a.Number, b.Number) })
	for i := range t.subscriptions {
		s := &t.subscriptions[i]
		if i == 0 {
			// No plan came before, so the first one begins with its hour, which no slot straddles. Otherwise the first
			// units in the slot would have no plan.
			s.From -= (s.From%3600 + 3600) % 3600
		}
	}
	for i := range t.versions {
		v := &t.versions[i]
		if i > 0 { // a later version replaces an earlier one, whatever the clocks of their servers said
			v.From = max(v.From, t.versions[i-1].From)
		}
		t.byNumber[v.Number] = v
	}
	return t
}

// plan is the tenant's plan at a time; empty for none.
func (t *timeline) plan(at int64) string {
	for i := len(t.subscriptions) - 1; i >= 0; i-- {
		if s := &t.subscriptions[i]; s.From <= at && (s.To == 0 || at < s.To) {
			return s.Plan
		}
	}
	return ""
}

// isElsewhere reports whether usage of that time is on another's statements.
func (t *timeline) isElsewhere(at int64) bool { return within(t.elsewhere, at) }

// within reports whether a time is in one of the ranges.
func within(ranges []Range, at int64) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return at >= r.From && at < r.To })
}

// version is the one in force at a time; nil before the first.
func (t *timeline) version(at int64) *Version {
	for i := len(t.versions) - 1; i >= 0; i-- {
		if t.versions[i].From <= at {
			return &t.versions[i]
		}
	}
	return nil
}

// price is what the plan costs by a policy version that has it: nil for nothing. If the version is unknown, or lacks
// the plan, the version in force at that time decides.
func (t *timeline) price(plan string, version, at int64) *Price {
	if v := t.byNumber[version]; v != nil {
		if price, has := v.Prices[plan]; has {
			return price
		}
	}
	if v := t.version(at); v != nil {
		return v.Prices[plan]
	}
	return nil
}

// made reports whether the tenant of the usage was made by then. Before that usage may have been admitted under the
// default plan, which nobody pays for. The hour in which the first subscription begins counts as before.
func (t *timeline) made(u *Usage) bool {
	hour := floor(u.Slot, 3600)
	return len(t.subscriptions) > 0 && hour > t.subscriptions[0].From ||
		slices.ContainsFunc(t.subscriptions, func(s Subscription) bool { return s.Plan == u.Plan && s.From < hour+3600 })
}

// terms divides a period by the plan and price in force, with the usage that was admitted under each. Usage is priced
// under the plan and the version of its admission, if that price held for some of the period. So an agent that heard
// late of a change needs no cut.
func (t *timeline) terms(p Period, usage func(func(*Usage))) ([]Term, error) {
	type identity struct{ plan, price string }
	var terms []*Term
	found := make(map[identity]*Term)
	of := func(plan string, price *Price) *Term {
		id := identity{plan, price.String()}
		term := found[id]
		if term == nil {
			term = &Term{Plan: plan, Price: id.price, Ranges: []Range{}, Used: []Units{}, price: price}
			found[id] = term
			terms = append(terms, term)
		}
		return term
	}
	edges := t.edges(p)
	for i, from := range edges[:len(edges)-1] {
		plan := t.plan(from)
		if plan == "" || t.isElsewhere(from) {
			continue
		}
		term, to := of(plan, t.price(plan, 0, from)), edges[i+1]
		if n := len(term.Ranges); n > 0 && term.Ranges[n-1].To == from {
			term.Ranges[n-1].To = to
			continue
		}
		term.Ranges = append(term.Ranges, Range{from, to})
	}
	held := func(plan string, price *Price) bool {
		term := found[identity{plan, price.String()}]
		return term != nil && len(term.Ranges) > 0
	}
	var failed error
	usage(func(u *Usage) {
		if !p.Has(u.Slot) || u.Meter == "" || t.isElsewhere(u.Slot) {
			return
		}
		plan := cmp.Or(u.Plan, t.plan(u.Slot))
		price := t.price(plan, u.Version, u.Slot)
		if u.Plan != "" && !t.made(u) {
			price = nil
		} else if !held(plan, price) {
			// An agent heard late of another price. A price that held for none of the period includes no units, so
			// these would cost what the plan includes. They are priced as the plan is in that slot.
			for _, at := range []int64{u.Slot + Grid - 1, u.Slot} {
				if own := t.price(plan, 0, at); held(plan, own) || u.Plan == "" {
					price = own
				}
			}
		}
		term := of(plan, price)
		if err := term.use(u.Units); err != nil {
			failed = err
		}
	})
	out := make([]Term, len(terms))
	for i, term := range terms {
		slices.SortFunc(term.Used, func(a, b Units) int { return cmp.Compare(a.Meter, b.Meter) })
		out[i] = *term
	}
	// Terms are sorted by when they began. Those that never held come by plan and price.
	slices.SortStableFunc(out, func(a, b Term) int {
		return cmp.Or(cmp.Compare(a.began(p), b.began(p)), cmp.Compare(a.Plan, b.Plan), cmp.Compare(a.Price, b.Price))
	})
	return out, failed
}

func (t *Term) began(p Period) int64 {
	if len(t.Ranges) == 0 {
		return p.To
	}
	return t.Ranges[0].From
}

// use adds units of a meter.
func (t *Term) use(u Units) error {
	for i := range t.Used {
		if s := &t.Used[i]; s.Meter == u.Meter {
			return s.add(u)
		}
	}
	t.Used = append(t.Used, Units{Meter: u.Meter})
	return t.Used[len(t.Used)-1].add(u)
}

// add refuses sums that an int64 may not hold: they would become wrong amounts.
func (s *Units) add(u Units) error {
	const most = 1 << 60
	s.Admitted += u.Admitted
	s.Overage += u.Overage
	for _, n := range []int64{s.Admitted, s.Overage, u.Admitted, u.Overage} {
		if n > most || n < -most {
			s.Admitted, s.Overage = 0, 0
			return ErrAmount
		}
	}
	return nil
}

// edges are the period's begin and end, and all times between at which something changes.
func (t *timeline) edges(p Period) []int64 {
	edges := []int64{p.From, p.To}
	add := func(at int64) {
		if at > p.From && at < p.To {
			edges = append(edges, at)
		}
	}
	for _, s := range t.subscriptions {
		add(s.From)
		add(s.To)
	}
	if len(t.subscriptions) > 0 {
		add(t.subscriptions[0].From + 3600) // usage of the hours before is told apart by made
	}
	for _, v := range t.versions {
		add(v.From)
	}
	for _, r := range t.elsewhere {
		add(r.From)
		add(r.To)
	}
	slices.Sort(edges)
	return slices.Compact(edges)
}
