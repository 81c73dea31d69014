package agent

import (
	"errors"
	"slices"

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
