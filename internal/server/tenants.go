package server

import (
	"container/list"
	"context"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// tenantCache holds the tenants in use, the least recently used one leaving first.
// Its owner's lock guards it.
type tenantCache struct {
	most  int
	byID  map[string]*list.Element // of *cachedTenant
	order *list.List               // most recently used first
}

type cachedTenant struct {
	tenant limit.Tenant
	rules  compiled
	shadow compiled
	// old is one that has to be read again. It is what was in force, should what is stored
	// now turn out to be faulty.
	old bool
}

// compiled is a tenant's rules under one policy.
type compiled struct {
	under *limit.Rules
	rules []*limit.Rule
}

// of returns the tenant's rules under a policy, compiled once.
func (c *compiled) of(t limit.Tenant, under *limit.Rules) []*limit.Rule {
	if under == nil {
		return nil
	}
	if c.under != under {
		// A tenant without a plan has no limits, and its requests are refused: no error here.
		c.rules, _ = under.Tenant(t)
		c.under = under
	}
	return c.rules
}

func newTenantCache(most int) tenantCache {
	return tenantCache{most: most, byID: make(map[string]*list.Element), order: list.New()}
}

func (c *tenantCache) len() int { return len(c.byID) }

// age has every tenant read again.
func (c *tenantCache) age() {
	for id := range c.byID {
		c.ageOne(id)
	}
}

func (c *tenantCache) ageOne(id string) {
	if e, ok := c.byID[id]; ok {
		e.Value.(*cachedTenant).old = true
	}
}

// get returns a tenant with its rules under the policy in force, and its shadow.
func (c *tenantCache) get(id string, now *inForce) (resolved, bool) {
	e, ok := c.byID[id]
	if !ok || e.Value.(*cachedTenant).old {
		return resolved{}, false
	}
	if len(c.byID) > c.most/2 { // before, none leaves soon, and keeping the order is most of what a look-up takes
		c.order.MoveToFront(e)
	}
	return e.Value.(*cachedTenant).resolve(now), true
}

// last returns what was last known of a tenant, old or not; without it, err.
func (c *tenantCache) last(id string, now *inForce, err error) resolved {
	e, ok := c.byID[id]
	if !ok {
		return resolved{err: err}
	}
	c.order.MoveToFront(e)
	return e.Value.(*cachedTenant).resolve(now)
}

// put resolves a tenant that was read, and keeps it if keep says so.
func (c *tenantCache) put(t limit.Tenant, now *inForce, keep bool) resolved {
	entry := &cachedTenant{tenant: t}
	if !keep {
		return entry.resolve(now)
	}
	if e, ok := c.byID[t.ID]; ok {
		e.Value = entry
		c.order.MoveToFront(e)
	} else {
		c.byID[t.ID] = c.order.PushFront(entry)
	}
	for len(c.byID) > c.most {
		oldest := c.order.Back()
		c.order.Remove(oldest)
		delete(c.byID, oldest.Value.(*cachedTenant).tenant.ID)
	}
	return entry.resolve(now)
}

// replace puts a changed tenant in the place of the one that is kept, if any is.
func (c *tenantCache) replace(t limit.Tenant) {
	if e, ok := c.byID[t.ID]; ok {
		e.Value = &cachedTenant{tenant: t}
	}
}

// ageOverrides has the tenants read again whose limits are not just their plan's.
func (c *tenantCache) ageOverrides() {
	for id, e := range c.byID {
		if len(e.Value.(*cachedTenant).tenant.Overrides) > 0 {
			c.ageOne(id)
		}
	}
}

func (t *cachedTenant) resolve(now *inForce) resolved {
	return resolved{tenant: t.tenant, parent: t.tenant.Parent, placed: true, rules: t.rules.of(t.tenant, now.rules), shadow: t.shadow.of(t.tenant, now.shadow)}
}

// change is tenants that changed after one change number and up to another.
type change struct {
	after, through int64
	tenants        []limit.Tenant // that can be made out: the others keep what they have
	faulty         faultyTenants  // the others
}

// journal is the latest changes of tenants, for streams that have not been sent
// them yet. Its owner's lock guards it.
type journal struct {
	floor   int64 // changes up to here are not kept
	changes []change
	kept    int
}

func (j *journal) restart(floor int64) { *j = journal{floor: floor} }

func (j *journal) add(c change) {
	j.changes = append(j.changes, c)
	j.kept += max(1, len(c.tenants))
	for j.kept > keptChanges && len(j.changes) > 1 {
		j.kept -= max(1, len(j.changes[0].tenants))
		j.floor = j.changes[0].through
		// Streams may be reading the slice: it is shortened, never written to.
		j.changes = j.changes[1:]
	}
}

// head is the number through which the journal goes.
func (j *journal) head() int64 {
	if n := len(j.changes); n > 0 {
		return j.changes[n-1].through
	}
	return j.floor
}

// since returns the changes after a number; not ok when some may be missing.
func (j *journal) since(after int64) (changes []change, ok bool) {
	if after < j.floor || after > j.head() {
		return nil, false
	}
	for i, c := range j.changes {
		if c.through > after {
			return j.changes[i:len(j.changes):len(j.changes)], true
		}
	}
	return nil, true
}

// unchanged reports whether a tenant surely has not changed after a number.
func (j *journal) unchanged(id string, after int64) bool {
	changes, ok := j.since(after)
	if !ok {
		return false
	}
	for _, c := range changes {
		for i := range c.tenants {
			if c.tenants[i].ID == id {
				return false
			}
		}
	}
	return true
}

// Above returns the tenant directly above each, and whether that is known now.
func (v *view) Above(ctx context.Context, ids []string) (parents []string, known []bool) {
	parents, known = make([]string, len(ids)), make([]bool, len(ids))
	for i, r := range v.tenants(ctx, ids) {
		parents[i], known[i] = r.parent, r.placed
	}
	return parents, known
}

// Parents are those that the store has above tenants, which it is asked for each time.
func (v *view) Parents(ctx context.Context, ids, begin []string) ([]string, error) {
	return v.store.Parents(ctx, ids, begin)
}

// parentsOf is whom changed tenants are below, by their ids.
func parentsOf(changes []change) map[string]string {
	parents := make(map[string]string)
	for _, c := range changes {
		for i := range c.tenants {
			parents[c.tenants[i].ID] = c.tenants[i].Parent
		}
		for id, f := range c.faulty {
			parents[id] = f.parent
		}
	}
	return parents
}
