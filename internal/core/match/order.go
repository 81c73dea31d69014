package match

import (
	"cmp"
	"slices"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Order returns the order in which a tenant's limits are asked, as indexes of held, which is sorted by rank. Unmetered
// limits come first, strictest first, so that a denial is found early. Then come metered ones, so that units of the
// last asked are never put back. Then come slots, which a request may wait long for, and at last limits that only
// count. tried are shadow limits, which deny nothing.
func Order(held []limit.Held, tenant string) (asked, tried []int) {
	for i := range held {
		switch l := &held[i].Rule.Limit; {
		case !l.Shadow:
			asked = append(asked, i)
		case Triable(l):
			tried = append(tried, i)
		}
	}
	slices.SortStableFunc(asked, func(a, b int) int {
		if d := turn(&held[a], tenant) - turn(&held[b], tenant); d != 0 || held[a].Rule.Limit.Slots == 0 {
			return d
		}
		return slotsOrder(&held[a], &held[b])
	})
	return asked, tried
}

// Triable reports whether a limit can be tried without denying. Slots cannot: a request that is not denied for them does
// not say when it ends.
func Triable(l *limit.Limit) bool { return !l.CountsOnly() && l.Slots == 0 }

// turn is when a limit is asked: see Order.
func turn(h *limit.Held, tenant string) int {
	switch l := &h.Rule.Limit; {
	case l.CountsOnly():
		return 4
	case l.Slots > 0:
		return 3
	case l.Meter == "":
		return 0
	case holder(h, tenant) == anAncestor:
		return 1
	default:
		return 2
	}
}

// slotsOrder is one order for all requests, whatever their tenants. A request keeps the slots of one bucket while it
// waits for another's, so with one order no two requests wait for each other. The fewest slots come first: no request
// keeps slots of a large limit while it waits for one of a small limit.
func slotsOrder(a, b *limit.Held) int {
	return cmp.Or(cmp.Compare(a.Rule.Limit.Slots, b.Rule.Limit.Slots),
		cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Rule.Limit.Name, b.Rule.Limit.Name))
}

// A limit is held by the policy's top level, by the tenant's own plan, or by an ancestor's.
const (
	topLevel = iota
	own
	anAncestor
)

func holder(h *limit.Held, tenant string) int {
	switch h.Tenant {
	case "":
		return topLevel
	case tenant:
		return own
	}
	return anAncestor
}
