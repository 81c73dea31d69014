package agent

import (
	"slices"
	"unique"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// role is a limit's part in a set.
type role uint8

const (
	decides role = iota
	onTrial      // a shadow limit of the policy in force: it denies nothing, and feeds no meter
	shadow       // the shadow version's, likewise
)

// set compiles what holds the requests of chain[0].
func (b *rebuild) set(chain []limit.Tenant, held []limit.Held) *Set {
	s := new(Set)
	if b.endless {
		held = slices.DeleteFunc(slices.Clone(held), func(h limit.Held) bool { return h.Rule.Limit.Slots > 0 })
	}
	for i := range chain {
		s.Chain = append(s.Chain, chain[i].ID)
	}
	b.nested = b.nested || len(chain) > 1
	asked, tried := match.Order(held, s.tenant())
	s.List = b.list(s, held, asked, decides)
	if len(tried) > 0 {
		s.Trying, s.Trial = true, &Trial{Limits: b.list(s, held, tried, onTrial), Version: b.list(s, nil, nil, shadow)}
	}
	s.Slots = slices.ContainsFunc(s.Items, func(it match.Item) bool { return it.Slots })
	return s
}

// try adds what the shadow version says of the set's requests.
func (b *rebuild) try(s *Set, held []limit.Held) {
	var order []int
	for i := range held {
		if match.Triable(&held[i].Rule.Limit) {
			order = append(order, i)
		}
	}
	if len(order) == 0 {
		return
	}
	if s.Trial == nil {
		s.Trying, s.Trial = true, &Trial{Limits: b.list(s, nil, nil, onTrial)}
	}
	s.Trial.Version = b.list(s, held, order, shadow)
}

// tenant is whose requests the set holds; empty for those without one.
func (s *Set) tenant() string {
	if len(s.Chain) == 0 {
		return ""
	}
	return s.Chain[0]
}

// list compiles limits, given in the order of asking as indexes of held.
func (b *rebuild) list(s *Set, held []limit.Held, order []int, as role) List {
	rules := b.rules
	if as == shadow {
		rules = b.trial
	}
	l := List{List: b.lists.Of(held, order, s.tenant(), as != decides), scopes: make([]*Scope, len(order)), costs: rules.Costs()}
	for i, rank := range order {
		l.scopes[i] = b.identify(&held[rank], rules, as == shadow)
	}
	return l
}

// identify returns the scope of a held limit, up to date, and the scope of its overage with it.
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
	s.version, s.round = rules.Policy.Version, b.round
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

// maxUsual bounds usual; beyond it sharing begins anew.
const maxUsual = 4096

// termsOf returns the terms of a held limit, the same for all tenants that have a plan's as it is.
func (b *rebuild) termsOf(h *limit.Held) *bucket.Terms {
	if h.Rate != h.Rule.Limit.Rate || h.Burst != h.Rule.Limit.Burst {
		return bucket.TermsOf(*h)
	}
	t := b.usual[h.Rule]
	if t == nil {
		t = bucket.TermsOf(*h)
		if len(b.usual) >= maxUsual {
			clear(b.usual)
		}
		b.usual[h.Rule] = t
	}
	return t
}
