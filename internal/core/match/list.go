package match

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// List is limits in the order of asking. It is immutable, and tenants with the same limits share it: so it stays in the
// processor's caches however many tenants there are.
type List struct {
	Items []Item
	// matchers tell which of Items a request meets, limit.MatcherRules to each. None where every request meets all.
	matchers []*limit.Matcher
	// Weighs: some of Items do.
	Weighs bool
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

// Concerns reports whether a limit holds the request.
func (l *List) Concerns(attributes []limit.Attribute) bool {
	for first := 0; first < len(l.Items); first += limit.MatcherRules {
		if l.Match(first, attributes) != 0 {
			return true
		}
	}
	return false
}

// Lists compiles lists, each once for all tenants for whom it is the same. The zero Lists is empty.
type Lists struct {
	known map[string]*List // by the place of each rule in memory, where it stays while its list is here
}

// maxLists bounds the shared lists; beyond it sharing begins anew. Tenants with overrides that differ from their plan
// in more than rate and burst have rules of their own, and share with nobody.
const maxLists = 4096

// Clear forgets all lists, for the next policy has other rules.
func (ls *Lists) Clear() { clear(ls.known) }

// Of compiles a tenant's limits, given in the order of asking as indexes of held. Limits on trial feed no meter.
func (ls *Lists) Of(held []limit.Held, order []int, tenant string, trial bool) *List {
	var key []byte
	for _, rank := range order {
		h := &held[rank]
		key = binary.NativeEndian.AppendUint64(key, uint64(uintptr(unsafe.Pointer(h.Rule))))
		key = append(key, byte(rank), byte(rank>>8), byte(holder(h, tenant)))
	}
	if trial {
		key = append(key, 't')
	}
	if l := ls.known[string(key)]; l != nil {
		return l
	}
	l := compile(held, order, tenant, trial)
	if len(ls.known) >= maxLists || ls.known == nil {
		ls.known = make(map[string]*List)
	}
	ls.known[string(key)] = l
	return l
}

func compile(held []limit.Held, order []int, tenant string, trial bool) *List {
	l := &List{Items: make([]Item, len(order))}
	rules := make([]*limit.Rule, len(order))
	for i, rank := range order {
		it := &l.Items[i]
		*it = item(&held[rank], rank, tenant)
		if !trial {
			it.Metered = it.Rule.Limit.Meter != ""
			it.Inherited = it.Metered && holder(&held[rank], tenant) == anAncestor
			it.Hold = it.Metered && (i < len(order)-1 || it.Inherited)
		}
		rules[i] = it.Rule
		l.Weighs = l.Weighs || it.Weighs
	}
	if slices.ContainsFunc(rules, func(r *limit.Rule) bool { return len(r.Limit.Match) > 0 }) {
		for part := range slices.Chunk(rules, limit.MatcherRules) {
			l.matchers = append(l.matchers, limit.NewMatcher(part))
		}
	}
	return l
}
