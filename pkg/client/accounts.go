package client

import (
	"maps"
	"slices"

	"github.com/f4ee788f/quota/internal/agent"
	"github.com/f4ee788f/quota/internal/lease"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// maxAccounts bounds the limits that are accounted for, over all that policies and
// tenants ever named; those beyond are left out, and reconciliation says so of them.
const maxAccounts = 1024

// accounts add up what became of leases, by limit: the agent's side of what servers
// record. The loop's.
type accounts struct {
	number int64
	sums   map[string]*agent.Account // of what is over: leases that were replaced, buckets that are no more
	last   *agent.Account            // that of the limit asked for last: most buckets have the same
	lastOf string
}

// of returns the sums of a limit; nil beyond the bound.
func (a *accounts) of(limit string) *agent.Account {
	if a.last != nil && a.lastOf == limit {
		return a.last
	}
	s := a.sums[limit]
	if s == nil && len(a.sums) < maxAccounts {
		if a.sums == nil {
			a.sums = map[string]*agent.Account{}
		}
		s = new(agent.Account)
		a.sums[limit] = s
	}
	if s != nil {
		a.last, a.lastOf = s, limit
	}
	return s
}

// answered accounts for the lease that a grant ended, and for the grant.
func (a *accounts) answered(e *agent.Entry, got *agent.Answered, g *lease.Grant) {
	if !got.WasEnded || !e.Accounted() {
		return
	}
	if s := a.of(e.Limit()); s != nil {
		got.Ended.Granted = g.Most()
		s.Add(got.Ended)
	}
}

// booked accounts for usage that was put into rows.
func (a *accounts) booked(e *agent.Entry, sum agent.Sum) {
	if sum.Booked == 0 {
		return
	}
	if s := a.of(e.Limit()); s != nil {
		s.Booked += sum.Booked
	}
}

// dropped accounts for a bucket that is no more. What its lease still had has expired.
func (a *accounts) dropped(e *agent.Entry) {
	if !e.Accounted() {
		return
	}
	if s := a.of(e.Limit()); s != nil {
		was := e.Standing()
		was.Held = 0
		s.Add(was)
	}
}

// say is the account as of now; nil where there is nothing to say.
func (a *accounts) say(c *Client) *quotav1.LeaseAccounts {
	standing := map[string]*agent.Account{}
	var last *agent.Account // of the bucket before: most have the same limit
	limit := ""
	c.reg.Each(func(e *agent.Entry) {
		if !e.Accounted() {
			return
		}
		if last == nil || e.Limit() != limit {
			limit = e.Limit()
			if a.of(limit) == nil {
				last = nil
				return
			}
			if last = standing[limit]; last == nil {
				last = new(agent.Account)
				standing[limit] = last
			}
		}
		last.Add(e.Standing())
	})
	if len(a.sums) == 0 {
		return nil
	}
	a.number++
	said := &quotav1.LeaseAccounts{Agent: c.cfg.agent, Epoch: c.epoch, Number: a.number}
	for _, limit := range slices.Sorted(maps.Keys(a.sums)) {
		s := *a.sums[limit]
		if now := standing[limit]; now != nil {
			s.Add(*now)
		}
		said.Limits = append(said.Limits, &quotav1.LeaseAccount{
			Limit: limit, Granted: s.Granted, Unrun: s.Unrun, Returned: s.Returned, Told: s.Told, Spent: s.Spent,
			Beyond: s.Beyond, Held: s.Held, Booked: s.Booked,
		})
	}
	return said
}
