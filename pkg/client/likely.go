package client

import (
	"slices"

	"github.com/f4ee788f/quota/internal/core/likely"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// likely lowers what the request reserves of each cost to what is likely, where the policy says so. What the caller said
// is the most, and taken where it wants the whole. It may be called again, under another policy.
func (r *request) likely(costs *limit.Costs) {
	res := r.reserves
	res.named, res.names = costs, costs.Names()
	for i, most := range res.most {
		of := &r.costs[i]
		of.Units = most
		l, is := costs.Likely(of.Name)
		if !is || most <= 0 || res.whole {
			continue
		}
		n, known := r.c.likely.Quantile(likelyKey(l, r.attrs), l.QuantilePPM)
		switch {
		case known:
			of.Units = min(most, max(n, 1)) // with nothing at all it would be no reservation
		case l.First > 0:
			of.Units = min(most, l.First)
		}
	}
}

// took notes what its request took of each cost, and the most that it may come to.
func (r *Reservation) took(n int64, costs []Cost) {
	said := r.most
	r.most = make([]int64, len(r.names))
	var err error
	if r.reserved, err = r.read(n, costs); err != nil {
		r.reserved = make([]int64, 1+len(r.names)) // no policy was asked, and none would name such costs
		return
	}
	for i, most := range said {
		r.most[slices.Index(r.names, costs[i].Name)] = most
	}
}

// likelyKey names the requests that are alike.
func likelyKey(l limit.Likely, attrs []limit.Attribute) likely.Key {
	k := likely.Key{Tenant: match.Lookup(attrs, limit.AttrTenant), Cost: l.Cost}
	if l.By != "" {
		k.Value = limit.Value(match.Lookup(attrs, l.By))
	}
	return k
}

// learn notes what the request turned out to cost, as committed. The reservation's mutex is held.
//
// A stream that was cut because the budget ended would have cost more than it had reserved. It counts as one unit more
// than that. Left out, the longest would be missing. As far as it came, it could be below what is likely. Either would
// lower each next reservation, and cut more. One that had not used half of it was not at its end.
//
// What was cut, or came to the most that its caller had said, tells only what it cost at least.
func (r *Reservation) learn() {
	if r.named == nil || !slices.ContainsFunc(r.totals, func(n int64) bool { return n > 0 }) {
		return // it cost nothing: it was cancelled
	}
	for i, name := range r.names {
		l, is := r.named.Likely(name)
		n, reserved := r.totals[1+i], r.reserved[1+i]
		if !is || n == 0 && reserved == 0 {
			continue
		}
		cut, most, k := r.short&(1<<i) != 0, r.most[i], likelyKey(l, r.attrs)
		if cut && n >= reserved/2 {
			n = max(n, reserved+1)
		}
		if cut || most > 0 && n >= most {
			r.c.likely.ObserveLeast(k, l.QuantilePPM, n)
		} else {
			r.c.likely.Observe(k, n)
		}
	}
}

// extended notes more units that are reserved, or that a limit denied them. The reservation's mutex is held.
func (r *Reservation) extended(more []int64, denied bool) {
	if !denied {
		r.reserved[0] = min(r.reserved[0]+more[0], limit.MaxUnits)
	}
	for i, n := range more[1:] {
		switch {
		case n == 0:
		case denied:
			r.short |= 1 << i
		default:
			r.short &^= 1 << i
			r.reserved[1+i] = min(r.reserved[1+i]+n, limit.MaxUnits) // no more can be committed
		}
	}
}
