package agent

import (
	"errors"
	"slices"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/table"
)

// Changes is the effect of a changed policy or changed tenants on buckets.
type Changes struct {
	Changed  []*Entry // their limit says something else: renew them soon
	Orphaned []*Entry // their limit is gone: give them up
}

// Adopt puts another policy in force, for one tenant after the other. The caller has collected usage first, which
// belongs to the version before. The owner's.
func (r *Registry) Adopt(rules *limit.Rules) Changes {
	r.mu.Lock()
	anew := rules.Policy.Version < r.version.Load() // the server began anew, and so do its counts of changes
	r.rules = rules
	r.lists.Clear()
	clear(r.usual)
	r.version.Store(rules.Policy.Version)
	b := r.rebuildLocked()
	r.mu.Unlock()
	return b.all(func(t *Tenant) {
		if anew {
			t.revision = 0
			r.askLocked(t)
		}
		t.lean(rules)
	})
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
	r.trial = rules
	b := r.rebuildLocked()
	r.mu.Unlock()
	if b.rules == nil {
		return Changes{}
	}
	return b.all(func(*Tenant) {})
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

// all makes every set anew, and calls before for each tenant first. It takes the mutex for a part of the tenants at a time:
// a million take seconds, and new buckets must not wait for them.
func (b *rebuild) all(before func(*Tenant)) Changes {
	b.mu.Lock()
	s := b.set(nil, topOf(b.rules))
	if b.trial != nil {
		b.try(s, topOf(b.trial))
	}
	if old := b.anonymous.Swap(s); old != nil {
		old.gone.Store(true)
	}
	for i := range table.Parts {
		for t := range b.tenants.Part(i) {
			before(t)
			b.resolve(t)
		}
		b.mu.Unlock()
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	for s := range b.scopes.All() {
		if s.round != b.round {
			b.orphan(s)
		}
	}
	return b.changes()
}

func topOf(rules *limit.Rules) []limit.Held {
	var top []limit.Held
	for _, rule := range rules.Top() {
		top = append(top, rule.Hold())
	}
	return top
}

// Differ reports whether Inform would change a tenant that has a set. It calls each for the buckets whose usage so far
// belongs to the tenant as it was known. They are those of its own limits, of limits of tenants below it, and of
// top-level limits that count its usage. The owner's.
func (r *Registry) Differ(tenants []limit.Tenant, each func(*Entry)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := make(map[string]bool)
	for i := range tenants {
		if t := r.find(tenants[i].ID); t != nil && t.known && t.news(&tenants[i]) {
			changed[t.id] = true
		}
	}
	for t := range r.pending { // for an ancestor
		if len(tenants) > 0 && t.known && t.set.Load() != nil {
			changed[t.id] = true
		}
	}
	search := make(map[*Scope]bool) // scopes of several buckets
	r.below(changed, func(_ *Tenant, s *Set) {
		for sc := range s.ownScopes {
			if e := sc.direct.Load(); e != nil {
				each(e)
			} else if sc.entries > 0 {
				search[sc] = true
			}
		}
	})
	rooted := false
	for id := range changed {
		rooted = rooted || r.rooted[r.find(id)] > 0
	}
	if len(search) > 0 || rooted {
		for e := range r.entries.All() {
			if search[e.scope] || rooted && changed[e.rootedIn()] {
				each(e)
			}
		}
	}
	return len(changed) > 0
}

// below calls f for those tenants that are known by these names, and for all below them.
func (r *Registry) below(names map[string]bool, f func(*Tenant, *Set)) {
	if len(names) == 0 {
		return
	}
	if r.nested {
		r.under(func(id string) bool { return names[id] }, f)
		return
	}
	for id := range names {
		if t := r.find(id); t != nil && t.set.Load() != nil {
			f(t, t.set.Load())
		}
	}
}

// under calls f for the tenants that have a set, and are, or have an ancestor, as is says.
func (r *Registry) under(is func(id string) bool, f func(*Tenant, *Set)) {
	for t := range r.tenants.All() {
		if s := t.set.Load(); s != nil && slices.ContainsFunc(s.Chain, is) {
			f(t, s)
		}
	}
}

// Inform takes the server's word on tenants; those not in use are ignored. Where Differ, the caller has collected usage
// first. Ancestors that are not known yet are to be asked for: see Unasked. The owner's.
func (r *Registry) Inform(tenants []limit.Tenant) Changes {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := make(map[string]bool)
	for i := range tenants {
		t := r.find(tenants[i].ID)
		if t == nil {
			continue
		}
		t.asking = false
		if t.known {
			if !t.news(&tenants[i]) {
				continue
			}
			changed[t.id] = true
		}
		t.info, t.known = infoOf(&tenants[i]), true
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
	r.under(func(id string) bool { return before[id] != r.denied[id] }, func(t *Tenant, _ *Set) { b.resolve(t) })
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
	limits    []limit.Limit   // scratch
	chain     []limit.Tenant  // whose set is made: the tenant and its ancestors
	different map[*Scope]bool // those that say something else than before
	left      []*Scope        // own scopes of the sets that were replaced
	orphans   map[*Scope]bool
}

func (r *Registry) rebuildLocked() *rebuild {
	r.round = max(r.round+1, 1) // it comes round, and never to an orphan's
	return &rebuild{Registry: r, different: make(map[*Scope]bool), orphans: make(map[*Scope]bool)}
}

func (b *rebuild) orphan(s *Scope) {
	if s.entries == 0 {
		b.forget(s)
		return
	}
	s.round = orphaned
	b.orphans[s] = true
}

// changes finds the buckets of the scopes that changed.
func (b *rebuild) changes() Changes {
	var c Changes
	sort := func(e *Entry) {
		switch {
		case b.different[e.scope]:
			c.Changed = append(c.Changed, e)
		case b.orphans[e.scope]:
			c.Orphaned = append(c.Orphaned, e)
		}
	}
	search := false // for the buckets of scopes that have several
	for _, scopes := range []map[*Scope]bool{b.different, b.orphans} {
		for s := range scopes {
			if e := s.direct.Load(); e != nil {
				sort(e)
			} else if s.entries > 0 {
				search = true
			}
		}
	}
	if search {
		c = Changes{}
		for e := range b.entries.All() {
			sort(e)
		}
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
			if _, waits := b.pending[t]; !waits {
				b.pending[t] = nil
			}
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
	s.owner = t
	old := t.set.Load()
	b.hasBelow(s, 1)
	if old != nil {
		b.hasBelow(old, -1)
	}
	t.set.Store(s)
	if ready := b.pending[t]; ready != nil {
		close(ready)
	}
	delete(b.pending, t)
	if old == nil {
		return
	}
	old.gone.Store(true)
	b.left = slices.AppendSeq(b.left, old.ownScopes)
}
