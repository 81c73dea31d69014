package session

import (
	"maps"
	"slices"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/lease"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// maxAccounts bounds the limits that are accounted for, over all that policies and tenants ever named. Those beyond
// are left out, and reconciliation says so.
const maxAccounts = 1024

// accounts add up what became of leases, by limit: the agent's side of what servers
// record. The loop's.
type accounts struct {
	number int64
	sums   map[string]*account
	last   *account // that of the limit asked for last: most buckets have the same
	lastOf string
	said   *quotav1.LeaseAccounts // as of the last look at all buckets; nil where there was nothing to say
}

// account is what became of the leases of a limit.
type account struct {
	over     lease.Account // of leases that were replaced, and of buckets that are no more
	standing lease.Account // of the buckets looked at since begin
}

// of returns the account of a limit; nil beyond the bound.
func (a *accounts) of(limit string) *account {
	if a.last != nil && a.lastOf == limit {
		return a.last
	}
	s := a.sums[limit]
	if s == nil && len(a.sums) < maxAccounts {
		if a.sums == nil {
			a.sums = map[string]*account{}
		}
		s = new(account)
		a.sums[limit] = s
	}
	if s != nil {
		a.last, a.lastOf = s, limit
	}
	return s
}

// answered accounts for the lease that a grant ended, and for the grant.
func (a *accounts) answered(e *agent.Entry, got *bucket.Answered, g *lease.Grant) {
	if !got.WasEnded || !e.Accounted() {
		return
	}
	if s := a.of(e.Limit()); s != nil {
		got.Ended.Granted = g.Most()
		s.over.Add(got.Ended)
	}
}

// booked accounts for usage that was put into rows.
func (a *accounts) booked(e *agent.Entry, units int64) {
	if units == 0 {
		return
	}
	if s := a.of(e.Limit()); s != nil {
		s.over.Booked += units
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
		s.over.Add(was)
	}
}

// begin begins a look at all buckets, each of which stands is told of. Then say says what it came to.
func (a *accounts) begin() {
	for _, s := range a.sums {
		s.standing = lease.Account{}
	}
}

// stands accounts for a bucket that there is.
func (a *accounts) stands(e *agent.Entry, now *lease.Account) {
	if !e.Accounted() {
		return
	}
	if s := a.of(e.Limit()); s != nil {
		s.standing.Add(*now)
	}
}

// say notes the account as of now, which goes with reports until the next. What ends later is in the next, so nothing
// counts twice.
func (a *accounts) say(s *Session) {
	if len(a.sums) == 0 {
		return
	}
	a.number++
	a.said = &quotav1.LeaseAccounts{Agent: s.cfg.Agent, Epoch: s.epoch, Number: a.number}
	for _, limit := range slices.Sorted(maps.Keys(a.sums)) {
		s := a.sums[limit].over
		s.Add(a.sums[limit].standing)
		a.said.Limits = append(a.said.Limits, &quotav1.LeaseAccount{
			Limit: limit, Granted: s.Granted, Unrun: s.Unrun, Returned: s.Returned, Told: s.Told, Spent: s.Spent,
			Beyond: s.Beyond, Held: s.Held, Booked: s.Booked,
		})
	}
}
