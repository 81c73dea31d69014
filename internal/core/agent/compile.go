package agent

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"unique"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// try adds what the shadow version says of the set's requests.
func (b *rebuild) try(s *Set, held []limit.Held) {
	var order []int
	for i := range held {
		if triable(&held[i].Rule.Limit) {
			order = append(order, i)
		}
	}
	if len(order) == 0 {
		return
	}
	if s.Trial == nil {
		s.Trial = &Trial{Limits: List{shared: new(shared)}}
	}
	s.Trying = true
	s.Trial.Version = b.list(nil, s.tenant(), held, order, onTrial{b.trial, true})
}

// triable reports whether a limit can be tried without denying: slots cannot, for a request
// that is not denied for them says nothing of its end.
func triable(l *limit.Limit) bool { return !l.CountsOnly() && l.Slots == 0 }

// set compiles what holds the requests of chain[0].
func (b *rebuild) set(chain []limit.Tenant, held []limit.Held) *Set {
	s := new(Set)
	if b.endless {
		held = slices.DeleteFunc(slices.Clone(held), func(h limit.Held) bool { return h.Rule.Limit.Slots > 0 })
	}
	tenant := ""
	s.Chain = s.self[:0]
	for i := range chain {
		s.Chain = append(s.Chain, chain[i].ID)
	}
	if len(chain) > 0 {
		tenant = chain[0].ID
	}
	b.nested = b.nested || len(chain) > 1
	var order, shadows []int // of asking, as indexes of held, which is by rank
	for i := range held {
		switch l := &held[i].Rule.Limit; {
		case !l.Shadow:
			order = append(order, i)
		case triable(l):
			shadows = append(shadows, i)
		}
	}
	if len(shadows) > 0 {
		s.Trying = true
		s.Trial = &Trial{Limits: b.list(nil, tenant, held, shadows, onTrial{b.rules, false}), Version: List{shared: new(shared)}}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if d := turn(&held[a], tenant) - turn(&held[b], tenant); d != 0 || held[a].Rule.Limit.Slots == 0 {
			return d
		}
		return slotsOrder(&held[a], &held[b])
	})
	s.List = b.list(s.first[:], tenant, held, order, onTrial{})
	for i := range s.Items {
		s.Slots = s.Slots || s.Items[i].Slots
	}
	return s
}

// tenant is whose requests the set holds; empty for those without one.
func (s *Set) tenant() string {
	if len(s.Chain) == 0 {
		return ""
	}
	return s.Chain[0]
}

// onTrial says that limits deny nothing and feed no meter, and of which version; zero for limits
// that are not on trial.
type onTrial struct {
	rules  *limit.Rules
	shadow bool // of the shadow version
}

// maxShared bounds what sets may come to share; beyond it sharing begins anew.
// Tenants with overrides that differ from their plan in more than rate and burst have rules of their own, and share with no one.
const maxShared = 4096

// list compiles limits, given in the order of asking as indexes of held. They are in places if
// there is room.
func (b *rebuild) list(places []place, tenant string, held []limit.Held, order []int, trial onTrial) List {
	if len(order) > len(places) {
		places = make([]place, len(order))
	}
	l := List{places: places[:len(order)], hash: b.hashOf(tenant)}
	rules := b.rules
	if trial.rules != nil {
		rules = trial.rules
	}
	var key []byte
	for i, rank := range order {
		h := &held[rank]
		sc := b.identify(h, rules, trial.shadow)
		l.places[i].scope = sc
		if len(h.Rule.Limit.By) == 0 {
			l.places[i].direct.Store(sc.direct.Load())
		}
		// The rule stays where it is for as long as items have it, and so does the key name no other.
		key = binary.NativeEndian.AppendUint64(key, uint64(uintptr(unsafe.Pointer(h.Rule))))
		key = append(key, byte(rank), byte(rank>>8), byte(whoseIs(h, tenant)))
	}
	if trial.rules != nil {
		key = append(key, 't')
	}
	if trial.shadow {
		key = append(key, 's')
	}
	if l.shared = b.shared[string(key)]; l.shared != nil {
		return l
	}
	l.shared = &shared{Items: make([]Item, len(order))}
	always := true
	all := make([]*limit.Rule, len(order))
	for i, rank := range order {
		it := &l.Items[i]
		it.is(&held[rank], l.places[i].scope, rank, tenant)
		it.hash = l.places[i].scope.kind.hash
		if trial.rules == nil {
			it.Metered = it.Rule.Limit.Meter != ""
			it.Inherited = it.Metered && it.whose == anAncestors
			it.Hold = it.Metered && (i < len(order)-1 || it.Inherited)
		}
		all[i] = it.Rule
		always = always && len(it.Rule.Limit.Match) == 0
	}
	if !always {
		for part := range slices.Chunk(all, limit.MatcherRules) {
			l.matchers = append(l.matchers, limit.NewMatcher(part))
		}
	}
	if len(b.shared) >= maxShared {
		clear(b.shared)
	}
	b.shared[string(key)] = l.shared
	return l
}

// is compiles one held limit, of which sc is an example.
func (it *Item) is(h *limit.Held, sc *Scope, rank int, tenant string) {
	l := &h.Rule.Limit
	it.Rule, it.Rank, it.values, it.whose = h.Rule, uint16(rank), uint16(len(l.By)), whoseIs(h, tenant)
	it.Vet = len(l.Allow) > 0 || len(l.Deny) > 0 || l.Reserve != limit.Reserve{}
	it.Slots, it.Queues = l.Slots > 0, l.Slots > 0 && l.Queue > 0
	it.Soft = sc.beyond != nil
	if len(l.By) == 1 && !strings.Contains(l.By[0], "/") {
		it.only = &l.By[0]
	}
}

func whoseIs(h *limit.Held, tenant string) whose {
	switch h.Tenant {
	case "":
		return everyones
	case tenant:
		return own
	}
	return anAncestors
}

// inherited reports whether the limit is an ancestor's of the tenant.
func inherited(h *limit.Held, tenant string) bool { return h.Tenant != "" && h.Tenant != tenant }

// turn is when a limit is asked: see Set.
func turn(h *limit.Held, tenant string) int {
	switch {
	case h.Rule.Limit.CountsOnly():
		return 4
	case h.Rule.Limit.Slots > 0:
		return 3
	case h.Rule.Limit.Meter == "":
		return 0
	case inherited(h, tenant):
		return 1
	default:
		return 2
	}
}

// slotsOrder is one order for all requests that ask for slots of several buckets and
// keep those of one while they wait for another's: so no two of them wait for each other. It
// says nothing that differs between the tenants of a tree. The fewest slots come
// first: who waits for them keeps none of the many.
func slotsOrder(a, b *limit.Held) int {
	return cmp.Or(cmp.Compare(a.Rule.Limit.Slots, b.Rule.Limit.Slots),
		cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Rule.Limit.Name, b.Rule.Limit.Name))
}

// identify returns the scope of a held limit, up to date, and with it that of what it
// admits above itself.
func (b *rebuild) identify(h *limit.Held, rules *limit.Rules, shadow bool) *Scope {
	s := b.upToDate(keyOf(&h.Rule.Limit, shadow), h, rules)
	was := s.beyond
	s.beyond = nil
	if above := h.Rule.Overage(); above != nil {
		beyond := above.Hold()
		beyond.Tenant = h.Tenant
		k := s.kindKey
		k.overage, k.counts = true, above.Limit.CountsOnly()
		s.beyond = b.upToDate(k, &beyond, rules)
	}
	if was != nil && was != s.beyond {
		b.left = append(b.left, was)
	}
	return s
}

func (b *rebuild) upToDate(key kindKey, h *limit.Held, rules *limit.Rules) *Scope {
	s, fresh := b.scope(key, h.Tenant, h.Rule.Limit.By)
	t := b.termsOf(h)
	switch was := s.now.Load(); {
	case fresh:
		s.now.Store(t)
	case s.round == b.round || was.Same(t):
		if was.Rule != t.Rule {
			s.now.Store(t) // in the words of another policy
		}
	default:
		b.different[s] = true
		s.now.Store(t)
	}
	s.version, s.round, s.orphan = rules.Policy.Version, b.round, false
	if h.Tenant != "" {
		s.plan = b.planOf(h.Tenant, rules)
	}
	return s
}

// planOf is the plan of a tenant of the chain, as the rules say.
func (b *rebuild) planOf(tenant string, rules *limit.Rules) unique.Handle[string] {
	at := slices.IndexFunc(b.chain, func(t limit.Tenant) bool { return t.ID == tenant })
	return unique.Make(rules.Policy.PlanOf(&b.chain[at]))
}

// termsOf returns the terms of a held limit, the same for all tenants that have a plan's as it is.
func (b *rebuild) termsOf(h *limit.Held) *bucket.Terms {
	if h.Rate != h.Rule.Limit.Rate || h.Burst != h.Rule.Limit.Burst {
		return bucket.TermsOf(h)
	}
	t := b.usual[h.Rule]
	if t == nil {
		t = bucket.TermsOf(h)
		if len(b.usual) >= maxShared {
			clear(b.usual)
		}
		b.usual[h.Rule] = t
	}
	return t
}
