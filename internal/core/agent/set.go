package agent

import (
	"sync/atomic"
	"unique"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// Set is every limit that holds a tenant's requests, in the order of asking (match.Order). It is immutable: a change makes
// another.
type Set struct {
	List
	Refusal Refusal
	Slots   bool // some of Items are of slots
	Trying  bool // Trial is there
	gone    atomic.Bool

	Trial *Trial   // what is decided beside Items; nil for nothing
	Chain []string // the tenant and its ancestors
	owner *Tenant  // the tenant; nil for none
	plan  unique.Handle[string]
}

// List is limits as a tenant holds them.
type List struct {
	*match.List
	scopes []*Scope // by item: the tenant's buckets of it
	costs  *limit.Costs
}

// Costs are those of the list's policy.
func (l *List) Costs() *limit.Costs { return l.costs }

// Trial is the limits that decide and count like any, and neither deny a request
// nor make it wait.
type Trial struct {
	Limits  List // shadow limits of the policy in force, each on its own
	Version List // the shadow version's, together: one that would deny takes nothing of the others
}

// Concerns reports whether a limit on trial holds the request.
func (t *Trial) Concerns(attributes []limit.Attribute) bool {
	return t != nil && (t.Limits.Concerns(attributes) || t.Version.Concerns(attributes))
}

// Place returns where in Items an item of the set is.
func (s *Set) Place(it *match.Item) int {
	at := 0
	for &s.Items[at] != it {
		at++
	}
	return at
}

// Gone reports whether another set has taken this one's place.
func (s *Set) Gone() bool { return s.gone.Load() }

// Held is an item of the set as its tenant has it, but for the meter.
func (s *Set) Held(it *match.Item) limit.Held { return s.scopes[s.Place(it)].held() }

// ownScopes calls f for the scopes of the set that are the tenant's own, not an ancestor's
// or the top level's, until it returns false.
func (s *Set) ownScopes(f func(*Scope) bool) {
	lists := []*List{&s.List}
	if s.Trial != nil {
		lists = append(lists, &s.Trial.Limits, &s.Trial.Version)
	}
	for _, l := range lists {
		for i, sc := range l.scopes {
			if l.Items[i].Own && (!f(sc) || sc.beyond != nil && !f(sc.beyond)) {
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
