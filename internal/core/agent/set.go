package agent

import (
	"sync/atomic"
	"unique"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Set is every limit that holds a tenant's requests, in the order of asking:
// unmetered ones, strictest first, so that a denial is found early; then metered
// ones, so that the last asked is never put back; then slots, which a request may wait long
// for; at last those that only count. It is immutable: a change makes another.
type Set struct {
	List
	Refusal Refusal
	Slots   bool // some of Items are of slots
	Trying  bool // Trial is there
	gone    atomic.Bool
	first   [1]place // what places points to, where it is one

	Trial *Trial    // what is decided beside Items; nil for nothing
	Chain []string  // the tenant and its ancestors
	self  [1]string // what Chain is, of a tenant without any
	owner *Tenant   // the tenant; nil for none
	// plan is the tenant's, whose limits these are. With it the set has two cache lines, of which an ordinary decision reads the first.
	plan unique.Handle[string]
}

// List is limits as a tenant holds them. What they say is shared by all tenants of a plan,
// so that it stays in the processor's caches however many tenants there are.
type List struct {
	*shared
	places []place // by item: the tenant's
	hash   uint64  // the tenant's part of its own limits' scopes' hashes
}

// shared is what tenants with the same limits share.
type shared struct {
	Items []Item
	// matchers tell which of Items a request meets, limit.MatcherRules to each. None where
	// every request meets all.
	matchers []*limit.Matcher
}

// place is where a tenant's buckets of one limit are.
type place struct {
	scope *Scope
	// direct is the bucket last found, where no values tell several apart. A dropped
	// one stays until the next is made: its cell admits nothing.
	direct atomic.Pointer[Entry]
}

// Match returns which of the Items from first on, a multiple of limit.MatcherRules, the request
// meets: bit i stands for Items[first+i].
func (l *List) Match(first int, attributes []limit.Attribute) uint64 {
	if l.matchers == nil {
		if n := len(l.Items) - first; n < limit.MatcherRules {
			return 1<<n - 1
		}
		return 1<<limit.MatcherRules - 1
	}
	return l.matchers[first/limit.MatcherRules].Match(attributes)
}

// Trial is the limits that decide and count like any, and neither deny a request
// nor make it wait.
type Trial struct {
	Limits  List // shadow limits of the policy in force, each on its own
	Version List // the shadow version's, together: one that would deny takes nothing of the others
}

// Concerns reports whether a limit on trial holds the request.
func (t *Trial) Concerns(attributes []limit.Attribute) bool {
	return t != nil && (t.Limits.concerns(attributes) || t.Version.concerns(attributes))
}

func (l *List) concerns(attributes []limit.Attribute) bool {
	for first := 0; first < len(l.Items); first += limit.MatcherRules {
		if l.Match(first, attributes) != 0 {
			return true
		}
	}
	return false
}

// Place returns where in Items an item of the set is.
func (s *Set) Place(it *Item) int {
	at := 0
	for &s.Items[at] != it {
		at++
	}
	return at
}

// Gone reports whether another set has taken this one's place.
func (s *Set) Gone() bool { return s.gone.Load() }

// Held is an item of the set as its tenant has it, but for the meter.
func (s *Set) Held(it *Item) limit.Held { return s.places[s.Place(it)].scope.held() }

// Item is a limit of a Set.
type Item struct {
	// Rule is what it says. Tenants share it who have a rate and burst of their own: see Held.
	Rule *limit.Rule
	only *string // the one attribute that tells buckets apart, uncut; or nil
	hash uint64  // the part of its scopes' hashes that is no tenant's

	values uint16
	// Rank orders by strictness, strictest first, whatever the order of asking.
	Rank uint16
	// Metered: a meter is fed, this tenant's or, where Inherited, an ancestor's.
	Metered bool
	// Hold: units taken may yet be put back although they are billed, or are billed elsewhere, so they are announced.
	Hold bool
	// Inherited: the limit is an ancestor's and metered there; these units are not billed there.
	Inherited bool
	// Slots: units are slots, which the request gives back at its end.
	Slots bool
	// Queues: a request waits its turn.
	Queues bool
	// Vet: the limit's lists, or a reserve, may decide before the bucket does.
	Vet bool
	// Soft: what the bucket denies may be admitted above it.
	Soft  bool
	whose whose
}

// Values returns how many values tell the limit's buckets apart.
func (it *Item) Values() int { return int(it.values) }

// whose says which tenant a limit is held by.
type whose uint8

// ownScopes calls f for the scopes of the set that are the tenant's own, not an ancestor's
// or the top level's, until it returns false.
func (s *Set) ownScopes(f func(*Scope) bool) {
	lists := [...]*List{&s.List, nil, nil}
	if s.Trial != nil {
		lists[1], lists[2] = &s.Trial.Limits, &s.Trial.Version
	}
	for _, l := range lists {
		if l == nil {
			return
		}
		for i := range l.places {
			if l.Items[i].whose != own {
				continue
			}
			sc := l.places[i].scope
			if !f(sc) || sc.beyond != nil && !f(sc.beyond) {
				return
			}
		}
	}
}

// holds reports whether there are buckets of the tenant's own limits.
func (s *Set) holds() bool {
	for sc := range s.ownScopes {
		if sc.entries > 0 {
			return true
		}
	}
	return false
}

const (
	everyones whose = iota // the policy's top level
	own
	anAncestors
)
