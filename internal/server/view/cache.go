package view

import (
	"container/list"

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
	// old marks a tenant that has to be read again. It stays in force if the stored one turns out to be faulty.
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
func (c *tenantCache) get(id string, now *InForce) (Resolved, bool) {
	e, ok := c.byID[id]
	if !ok || e.Value.(*cachedTenant).old {
		return Resolved{}, false
	}
	if len(c.byID) > c.most/2 { // before, none leaves soon, and keeping the order is most of what a look-up takes
		c.order.MoveToFront(e)
	}
	return e.Value.(*cachedTenant).resolve(now), true
}

// last returns what was last known of a tenant, old or not; without it, err.
func (c *tenantCache) last(id string, now *InForce, err error) Resolved {
	e, ok := c.byID[id]
	if !ok {
		return Resolved{Err: err}
	}
	c.order.MoveToFront(e)
	return e.Value.(*cachedTenant).resolve(now)
}

// put resolves a tenant that was read, and caches it if keep is set.
func (c *tenantCache) put(t limit.Tenant, now *InForce, keep bool) Resolved {
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

// replace replaces the cached tenant by the changed one, if it is cached.
func (c *tenantCache) replace(t limit.Tenant) {
	if e, ok := c.byID[t.ID]; ok {
		e.Value = &cachedTenant{tenant: t}
	}
}

// ageOverrides has tenants with overrides read again.
func (c *tenantCache) ageOverrides() {
	for id, e := range c.byID {
		if len(e.Value.(*cachedTenant).tenant.Overrides) > 0 {
			c.ageOne(id)
		}
	}
}

func (t *cachedTenant) resolve(now *InForce) Resolved {
	return Resolved{Tenant: t.tenant, parent: t.tenant.Parent, placed: true, Rules: t.rules.of(t.tenant, now.Rules), shadow: t.shadow.of(t.tenant, now.Shadow)}
}
