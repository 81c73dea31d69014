package agent

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"unique"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Changes is what a change of policy or tenants means for buckets.
type Changes struct {
	Changed  []*Entry // their limit says something else: renew them soon
	Orphaned []*Entry // their limit is gone: give them up
}

// Adopt puts another policy in force. The caller has collected usage first, which
// belongs to the version before. The owner's.
func (r *Registry) Adopt(rules *limit.Rules) Changes {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.rebuildLocked()
	if rules.Policy.Version < r.version.Load() {
		// The server began anew, and so do its counts of changes.
		r.tenants.each(func(t *Tenant) {
			t.revision = 0
			r.askLocked(t)
		})
	}
	r.rules = rules
	clear(r.shared)
	clear(r.usual)
	r.tenants.each(func(t *Tenant) { t.lean(rules) })
	r.version.Store(rules.Policy.Version)
	return b.all()
}

// Named returns the names of the limits in the policies in force and on trial.
func (r *Registry) Named() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make(map[string]bool)
	for _, rules := range []*limit.Rules{r.rules, r.trial} {
		if rules == nil {
			continue
		}
		for i := range rules.Policy.Limits {
			names[rules.Policy.Limits[i].Name] = true
		}
		for i := range rules.Policy.Plans {
			for j := range rules.Policy.Plans[i].Limits {
				names[rules.Policy.Plans[i].Limits[j].Name] = true
			}
		}
	}
	return names
}

// Try puts a policy beside the one in force, whose limits decide and count like any, and
// deny nothing; nil ends that. The caller has collected usage first. The owner's.
func (r *Registry) Try(rules *limit.Rules) Changes {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trial = rules
	if r.rules == nil {
		return Changes{}
	}
	return r.rebuildLocked().all()
}

// Trial returns the version that is tried beside the one in force; 0 for none. The owner's.
func (r *Registry) Trial() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trial == nil {
		return 0
	}
	return r.trial.Policy.Version
}

// all makes every set anew.
func (b *rebuild) all() Changes {
	s := b.set(nil, topOf(b.rules))
	if b.trial != nil {
		b.try(s, topOf(b.trial))
	}
	if old := b.anonymous.Swap(s); old != nil {
		old.gone.Store(true)
	}
	b.tenants.each(b.resolve)
	b.scopes.each(func(s *Scope) {
		if s.round != b.round {
			b.orphan(s)
		}
	})
	return b.changes()
}

func topOf(rules *limit.Rules) []limit.Held {
	var top []limit.Held
	for _, rule := range rules.Top() {
		top = append(top, rule.Hold())
	}
	return top
}

// Differ reports whether a tenant that is known already is said to have changed, or has waited for its ancestors since it did, and
// calls each for every bucket of the limits that it and those below it have, and of the top level's that count its usage: that
// is of what was known. The owner's.
func (r *Registry) Differ(tenants []limit.Tenant, each func(*Entry)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := make(map[string]bool)
	for i := range tenants {
		said := &tenants[i]
		if t := r.find(said.ID); t != nil && t.known && !t.overtook(said) && !t.is(said) {
			changed[t.id] = true
		}
	}
	for t := range r.pending {
		if len(tenants) > 0 && t.known && t.set.Load() != nil {
			changed[t.id] = true
		}
	}
	var search map[*Scope]bool // for their buckets, of which values tell one from the other
	r.below(changed, func(t *Tenant, s *Set) {
		for sc := range s.ownScopes {
			if len(sc.names) > 0 && sc.entries > 0 {
				if search == nil {
					search = make(map[*Scope]bool)
				}
				search[sc] = true
			} else if e := sc.direct.Load(); e != nil {
				each(e)
			}
		}
	})
	rooted := false
	for id := range changed {
		rooted = rooted || r.rooted[r.find(id)] > 0
	}
	if search != nil || rooted {
		r.entries.each(func(e *Entry) {
			if search[e.scope] || rooted && changed[e.rootedIn()] {
				each(e)
			}
		})
	}
	return len(changed) > 0
}

// below calls f for those tenants that are known by these names, and for all below them.
func (r *Registry) below(names map[string]bool, f func(*Tenant, *Set)) {
	if len(names) == 0 {
		return
	}
	if r.nested {
		r.tenants.each(func(t *Tenant) {
			if s := t.set.Load(); s != nil && slices.ContainsFunc(s.Chain, func(id string) bool { return names[id] }) {
				f(t, s)
			}
		})
		return
	}
	for id := range names {
		if t := r.find(id); t != nil {
			if s := t.set.Load(); s != nil {
				f(t, s)
			}
		}
	}
}

// Inform takes what the server says of tenants; those not in use are ignored. Where
// Differ, the caller has collected usage first. Ancestors that are not known yet
// are to be asked for: see Unasked. The owner's.
func (r *Registry) Inform(tenants []limit.Tenant) Changes {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := make(map[string]bool)
	for i := range tenants {
		said := &tenants[i]
		t := r.find(said.ID)
		if t == nil {
			continue
		}
		t.asking = false
		if t.known {
			if t.overtook(said) || t.is(said) {
				continue // of answers that a change has overtaken, and that are no news
			}
			changed[t.id] = true
		}
		t.info, t.known = infoOf(said), true
		t.lean(r.rules)
	}
	if r.rules == nil {
		return Changes{}
	}
	b := r.rebuildLocked()
	r.below(changed, func(t *Tenant, _ *Set) { b.resolve(t) })
	for t := range r.pending {
		if t.known {
			b.resolve(t)
		}
	}
	for _, s := range b.left {
		if s.round != b.round {
			b.orphan(s)
		}
	}
	return b.changes()
}

// Switch sets the operators' overrides. A tenant that is switched off takes its
// descendants with it. The owner's.
func (r *Registry) Switch(sw limit.Switches) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.denied
	r.denied = make(map[string]bool, len(sw.Denied))
	for _, id := range sw.Denied {
		r.denied[id] = true
	}
	r.mode.Store(uint32(sw.Mode))
	if r.rules == nil {
		return
	}
	b := r.rebuildLocked()
	r.tenants.each(func(t *Tenant) {
		if s := t.set.Load(); s != nil && slices.ContainsFunc(s.Chain, func(id string) bool { return before[id] != r.denied[id] }) {
			b.resolve(t)
		}
	})
}

// Off reports whether operators switched that very tenant off, known or not.
func (r *Registry) Off(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.denied[id]
}

// rebuild makes new sets under the registry's mutex.
type rebuild struct {
	*Registry
	round     int64
	limits    []limit.Limit   // scratch
	chain     []limit.Tenant  // whose set is made: the tenant and its ancestors
	different map[*Scope]bool // those that say something else than before
	left      []*Scope        // own scopes of the sets that were replaced
	orphans   map[*Scope]bool
}

func (r *Registry) rebuildLocked() *rebuild {
	r.round++
	return &rebuild{Registry: r, round: r.round, different: make(map[*Scope]bool), orphans: make(map[*Scope]bool)}
}

func (b *rebuild) orphan(s *Scope) {
	if s.entries == 0 {
		b.forget(s)
		return
	}
	s.orphan = true
	b.orphans[s] = true
}

// changes finds the buckets of the scopes that changed.
func (b *rebuild) changes() Changes {
	var c Changes
	search := false
	look := func(s *Scope, to *[]*Entry) {
		if len(s.names) > 0 {
			search = search || s.entries > 0
		} else if e := s.direct.Load(); e != nil {
			*to = append(*to, e)
		}
	}
	for s := range b.different {
		look(s, &c.Changed)
	}
	for s := range b.orphans {
		look(s, &c.Orphaned)
	}
	if search {
		b.entries.each(func(e *Entry) {
			switch {
			case len(e.scope.names) == 0:
			case b.different[e.scope]:
				c.Changed = append(c.Changed, e)
			case b.orphans[e.scope]:
				c.Orphaned = append(c.Orphaned, e)
			}
		})
	}
	for _, e := range c.Changed {
		e.Follow(e.scope.now.Load())
	}
	return c
}

// resolve makes a tenant's set if its ancestors are known, and asks for the first
// that is not.
func (b *rebuild) resolve(t *Tenant) {
	if !t.known {
		b.askLocked(t)
		return
	}
	said, limits := t.tenant(b.limits[:0])
	chain := append(make([]limit.Tenant, 0, 1), said)
	for chain[len(chain)-1].Parent != "" && len(chain) < limit.MaxTenantLevels {
		p, _ := b.learnLocked(chain[len(chain)-1].Parent)
		if p == nil || !p.known {
			b.pending[t] = struct{}{}
			return
		}
		said, limits = p.tenant(limits)
		chain = append(chain, said)
	}
	b.limits = limits
	held, err := b.rules.Chain(chain)
	b.chain = chain
	s := b.set(chain, held)
	s.plan = b.planOf(t.id, b.rules)
	if b.trial != nil {
		// A tenant without a plan there has no limits to try.
		if held, err := b.trial.Chain(chain); err == nil {
			b.try(s, held)
		}
	}
	switch {
	case slices.ContainsFunc(s.Chain, func(id string) bool { return b.denied[id] }):
		s.Refusal = Switched
	case errors.Is(err, limit.ErrSuspended):
		s.Refusal = Suspended
	case errors.Is(err, limit.ErrCapped):
		s.Refusal = Capped
	case err != nil:
		s.Refusal = NoPlan
	}
	delete(b.pending, t)
	s.owner = t
	old := t.set.Load()
	b.hasBelow(s, 1)
	if old != nil {
		b.hasBelow(old, -1)
	}
	t.set.Store(s)
	if t.ready != nil {
		close(t.ready)
		t.ready = nil
	}
	if old == nil {
		return
	}
	old.gone.Store(true)
	b.left = slices.AppendSeq(b.left, old.ownScopes)
}

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

// Drop takes a bucket out that holds nothing, and reports whether it did. A
// request that still has it in hand matches again. collect is called when nothing
// more can be admitted by it, for the last of its usage. The owner's.
func (r *Registry) Drop(e *Entry, collect func(*Entry)) bool {
	counting := e.scope.now.Load().Counting()
	if !counting {
		if live := e.State(0).Live; live || e.Flying {
			return false
		}
		e.Drain()
	}
	if e.marks.Load() >= pinned || !e.Empty() {
		return false
	}
	e.mark(dead, true)
	if e.marks.Load() >= pinned || !e.Empty() {
		e.mark(dead, false)
		return false
	}
	if counting {
		e.Drain()
	}
	e.Reopen()
	r.mu.Lock()
	r.entries.remove(r.hash(e.scope, e.values()), e)
	r.unroot(e)
	r.buckets.Store(int64(r.entries.live))
	s := e.scope
	if s.direct.Load() == e {
		s.direct.Store(nil)
	}
	if s.entries--; s.entries == 0 && s.orphan {
		r.forget(s)
	}
	r.mu.Unlock()
	collect(e)
	return true
}
