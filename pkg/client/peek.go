package client

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// peek is what is to be expected of a request of n units, of which it takes none; endless says that it passes limits of slots by. It
// calls met for each bucket that is not expected to deny; nil for nobody.
func (c *Client) peek(set *agent.Set, n int64, a []limit.Attribute, endless bool, met func(leg)) Decision {
	d := Decision{Allowed: true, Reason: ReasonUnlimited}
	mode := c.reg.Mode()
	rank := uint16(len(set.Items))
	for i := range set.Items {
		it := &set.Items[i]
		if endless && it.Slots || !it.Rule.Applies(a) || it.Vet && it.Rule.Listed(a) == limit.AllowedBy {
			continue
		}
		e := c.reg.Entry(&set.List, i, a)
		if it.Rank < rank {
			rank = it.Rank
			d.Reason, d.by = ReasonLimit, speaks(set, it, e)
		}
		if mode != limit.ModeNormal {
			continue
		}
		if denied, is := c.foresee(set, it, e, n, a); is {
			return denied
		}
		if e != nil && met != nil {
			met(leg{it, e})
		}
	}
	held := rank < uint16(len(set.Items))
	switch {
	case mode == limit.ModeAllowAll || held && mode != limit.ModeNormal:
		d.Reason = ReasonSwitch
	case !held && agent.Lookup(a, AttrTenant) == "":
		return Decision{Reason: ReasonNoTenant}
	}
	return d
}

// foresee is the denial of n units that is to be expected of a limit, if any is. Its bucket may be nil.
func (c *Client) foresee(set *agent.Set, it *agent.Item, e *agent.Entry, n int64, a []limit.Attribute) (d Decision, is bool) {
	if e == nil {
		if it.Vet && it.Rule.Listed(a) == limit.DeniedBy {
			return Decision{Reason: ReasonListed, by: speaks(set, it, nil)}, true
		}
		if l := &it.Rule.Limit; c.lost.Load() && !l.CountsOnly() && (l.OnOutage == limit.OutageClosed || !opens(it)) {
			return Decision{Reason: ReasonOutage, RetryAfter: time.Second, by: speaks(set, it, nil)}, true
		}
		return d, false // nothing is known of it
	}
	h := leg{it, e}
	if it.Vet {
		if reason := c.vetted(it, e, n, a); reason != ReasonLimit {
			return Decision{Reason: reason, RetryAfter: c.later(e, reason), by: h.speaks()}, true
		}
	}
	lost := c.lost.Load() || e.Lost()
	v := e.Foresee(c.now(), n, lost)
	if v.Outcome != bucket.Denied {
		return d, false
	}
	if it.Soft && !(lost && c.closes(it, e)) {
		above := c.reg.Above(e)
		if above == nil && (!lost || opens(it)) || above != nil && above.Foresee(c.now(), n, lost).Outcome != bucket.Denied {
			return d, false
		}
	}
	return c.denial(h, v, lost), true
}

// opens reports whether a limit admits, out of contact, what comes to no bucket that is known: itself, or above itself without a bound.
func opens(it *agent.Item) bool {
	if it.Rule.Limit.OnOutage == limit.OutageOpen {
		return true
	}
	above := it.Rule.Overage()
	return above != nil && above.Limit.CountsOnly()
}
