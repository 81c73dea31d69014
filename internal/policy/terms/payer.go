package terms

import (
	"fmt"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Bounds of the tenants that one tenant pays for: all are on its statement.
const (
	MaxMembers     = 1_000  // at a time
	MaxEverMembers = 10_000 // with those that left: their late usage is on its statements
)

// PayerChange says who pays for a tenant from a time on. It replaces earlier changes for that time.
type PayerChange struct {
	Tenant string
	Number int64  // of the tenant's changes, from 1 without gaps
	From   int64  // Unix seconds, on billing's grid; 0 for the beginning of its usage
	Payer  string // its parent then; empty for the tenant itself
}

// Payers says who pays for tenants, and when, by their changes in the order of numbers. A tenant pays for itself unless
// a change says otherwise, so every slot has one payer. If a parent's own parent pays, the payer is the first tenant
// above that pays for itself.
type Payers map[string][]PayerChange

// Paid says who pays for a tenant in a range of time.
type Paid struct {
	billing.Range
	Payer string
}

// forever is after all slots.
const forever = int64(1) << 61

// direct divides all time by the direct payer: the tenant itself, or its parent.
func (p Payers) direct(tenant string) []Paid {
	all := []Paid{{billing.Range{From: 0, To: forever}, tenant}}
	for _, c := range p[tenant] {
		for len(all) > 0 && all[len(all)-1].From >= c.From {
			all = all[:len(all)-1]
		}
		if n := len(all); n > 0 {
			all[n-1].To = c.From
		}
		payer := c.Payer
		if payer == "" {
			payer = tenant
		}
		all = append(all, Paid{billing.Range{From: c.From, To: forever}, payer})
	}
	return all
}

// Of divides all time by a tenant's payer.
func (p Payers) Of(tenant string) []Paid {
	var all []Paid
	p.walk(tenant, billing.Range{From: 0, To: forever}, 1, func(part Paid) {
		if n := len(all); n > 0 && all[n-1].Payer == part.Payer {
			all[n-1].To = part.To
			return
		}
		all = append(all, part)
	})
	return all
}

// walk tells who pays for a tenant within a range. It goes up limit.MaxTenantLevels at most. The tenant that it reaches
// there pays, so that there always is a payer.
func (p Payers) walk(tenant string, within billing.Range, level int, tell func(Paid)) (ends bool) {
	ends = true
	for _, part := range p.direct(tenant) {
		part.From, part.To = max(part.From, within.From), min(part.To, within.To)
		switch {
		case part.From >= part.To:
		case part.Payer == tenant:
			tell(part)
		case level >= limit.MaxTenantLevels:
			tell(part)
			ends = false
		default:
			ends = p.walk(part.Payer, part.Range, level+1, tell) && ends
		}
	}
	return ends
}

// Check reports a tenant without a payer at some time, because all tenants above it let another pay.
func (p Payers) Check(tenant string) error {
	if !p.walk(tenant, billing.Range{From: 0, To: forever}, 1, func(Paid) {}) {
		return fmt.Errorf("%w: tenant %s: who pays for it would be in a circle, or more than %d tenants above, at some time: "+
			"a payer that is to come (from, in billing) does not fit the others", fault.ErrInvalid, tenant, limit.MaxTenantLevels)
	}
	return nil
}

// At returns who pays for a tenant at a time, Unix seconds, and since when: 0 for the beginning.
func (p Payers) At(tenant string, at int64) (payer string, since int64) {
	for _, part := range p.Of(tenant) {
		if at < part.To {
			return part.Payer, part.From
		}
	}
	return tenant, 0 // not reached: Of covers all time
}

// Elsewhere are the times at which another tenant than payer pays for a tenant. first is when payer first does; paid is
// false if it never does.
func (p Payers) Elsewhere(payer, tenant string) (elsewhere []billing.Range, first int64, paid bool) {
	for _, part := range p.Of(tenant) {
		switch {
		case part.Payer != payer:
			if n := len(elsewhere); n > 0 && elsewhere[n-1].To == part.From {
				elsewhere[n-1].To = part.To
				continue
			}
			elsewhere = append(elsewhere, part.Range)
		case !paid:
			first, paid = part.From, true
		}
	}
	return elsewhere, first, paid
}

// Change returns the changes after which payer pays for a tenant from a time on. Until then the present payer pays,
// whatever change was to come. It returns none if payer will pay already. Times are Unix seconds.
func (p Payers) Change(tenant, payer string, now, from int64) []PayerChange {
	next := Payers{tenant: slices.Clone(p[tenant])}
	want := func(payer string, from, to int64) {
		other := func(part Paid) bool { return part.From < to && from < part.To && part.Payer != payer }
		if !slices.ContainsFunc(next.direct(tenant), other) {
			return
		}
		c := PayerChange{Tenant: tenant, Number: int64(len(next[tenant])) + 1, From: from}
		if payer != tenant {
			c.Payer = payer
		}
		next[tenant] = append(next[tenant], c)
	}
	from = max(from, now)
	for _, part := range p.direct(tenant) {
		if now >= part.From && now < part.To {
			want(part.Payer, now, from)
		}
	}
	want(payer, from, forever)
	return next[tenant][len(p[tenant]):]
}

// Household is a tenant and the tenants that it pays for, or paid for once.
type Household struct {
	Payers  Payers       // of all of them
	Members []Subscriber // by id; without the tenant itself
}

// Begins is the first slot, Unix seconds, that a tenant pays for, of its own or of a member. pays is false where there
// is none.
func (h *Household) Begins(s *Subscriber) (at int64, pays bool) {
	for _, of := range slices.Concat([]Subscriber{*s}, h.Members) {
		if _, first, paid := h.Payers.Elsewhere(s.ID, of.ID); paid && len(of.Subscriptions) > 0 {
			if first = max(first, of.Subscriptions[0].From); !pays || first < at {
				at, pays = first, true
			}
		}
	}
	return at, pays
}

// Pays reports whether a tenant pays for any slot from a time on, Unix seconds, of its own or of a member.
func (h *Household) Pays(s *Subscriber, from int64) bool {
	for _, of := range slices.Concat([]Subscriber{*s}, h.Members) {
		to := forever
		if ended := of.Ended(); ended != 0 {
			to = ended
		}
		for _, part := range h.Payers.Of(of.ID) {
			if part.Payer == s.ID && max(part.From, from) < min(part.To, to) {
				return true
			}
		}
	}
	return false
}

// NextSlot is when a change made now takes effect, Unix seconds. Usage of a slot that has begun stays where it is.
func NextSlot(now time.Time) int64 {
	at := now.Add(time.Second - 1).Unix()
	return at + (billing.Grid-at%billing.Grid)%billing.Grid
}

// Since says in words from when on a payer pays.
func Since(from int64) string {
	if from == 0 {
		return "since it began"
	}
	return "from " + time.Unix(from, 0).UTC().Format(time.RFC3339)
}
