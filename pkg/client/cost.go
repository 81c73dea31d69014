package client

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// Cost is units of one of the costs that the policy names, such as tokens or bytes. "requests" is none of them: its
// units have a place of their own.
type Cost struct {
	Name  string
	Units int64 // 0 to 1,000,000,000
}

// Request is what is to be decided, reserved or booked.
type Request struct {
	Units      int64  // of requests, 0 to 1,000,000,000
	Costs      []Cost // what else it costs, each name once; they are not kept
	Attributes []Attribute
	// Expires is how long a reservation of it lives, 1 second to 1 hour; 0 for WithReservationTime. Nothing else looks
	// at it.
	Expires time.Duration
	// Whole has a reservation take all its units, where the policy says to reserve what is likely: for callers that cannot
	// extend. Nothing else looks at it.
	Whole bool
}

// costsOf hands the caller's costs to the core without copying them, as attributesOf does attributes.
func costsOf(c []Cost) []limit.Cost { return *(*[]limit.Cost)(unsafe.Pointer(&c)) }

var _ = limit.Cost(Cost{})

// nothing reports whether a request costs nothing.
func nothing(n int64, costs []Cost) bool {
	for i := range costs {
		if costs[i].Units != 0 {
			return false
		}
	}
	return n == 0
}

// looks reports whether the request costs nothing: it asks whether one unit would be allowed, and takes none.
func (r *request) looks() bool { return nothing(r.n, r.costs) }

// inRange reports whether units of each cost are in range, whatever the policy names.
func inRange(n int64, costs []Cost) bool {
	for i := range costs {
		if costs[i].Units < 0 || costs[i].Units > limit.MaxUnits {
			return false
		}
	}
	return n >= 0 && n <= limit.MaxUnits && len(costs) <= limit.MaxCosts
}

// distinct reports whether no cost is named twice.
func distinct(costs []Cost) bool {
	for i := range costs {
		if slices.ContainsFunc(costs[:i], func(before Cost) bool { return before.Name == costs[i].Name }) {
			return false
		}
	}
	return true
}

// nameable reports whether there may be a policy that names the costs.
func nameable(costs []Cost) bool {
	return distinct(costs) && !slices.ContainsFunc(costs, func(c Cost) bool { return c.Name == limit.Requests })
}

// weigh reads what the request costs by the names of a list's policy. It sees that every limit of the list can make
// units of that, so that units does. The error says why one cannot.
func (r *request) weigh(list *agent.List) error {
	if err := r.cost(list); err != nil || !list.Weighs {
		return err
	}
	for _, it := range r.in(list).each {
		if _, err := r.weighed(it); err != nil {
			return err
		}
	}
	return nil
}

// cost reads what the request costs by the names of a list's policy. The error says which cost cannot be; all others
// are read.
func (r *request) cost(list *agent.List) error {
	r.amounts = limit.Amounts{}
	return list.Costs().Amounts(&r.amounts, r.n, costsOf(r.costs))
}

// errNoWeights is wrapped by errors of weighed.
var errNoWeights = errors.New("has no weights for a request")

// weighed returns the units that a limit makes of the request's costs. With an error these are none where it has no
// weights (errNoWeights). Where it would make more than limit.MaxUnits they are that many, or none of a request that is
// booked.
func (r *request) weighed(it *match.Item) (int64, error) {
	if !it.Weighs {
		return r.n, nil
	}
	w, ok := it.Rule.Weights(r.attrs)
	if !ok {
		return 0, fmt.Errorf("limit %s %w whose %s is %s", it.Rule.Limit.Name, errNoWeights, it.Rule.Limit.Cost.By,
			limit.Quote(match.Lookup(r.attrs, it.Rule.Limit.Cost.By)))
	}
	if !r.booked {
		return unitsOf(it, w, &r.amounts)
	}
	count := w.Booked
	if r.refunded {
		count = w.Refunded
	}
	n, ok := count(&r.amounts)
	if !ok {
		return 0, tooMany(it, limit.MaxBooked)
	}
	return n, nil
}

// unitsOf returns the units that the claim's limit makes of other costs of the same request. What its policy does not
// name costs nothing there. With an error these are limit.MaxUnits.
func (h *claim) unitsOf(n int64, costs []Cost) (int64, error) {
	if !h.item.Weighs {
		return n, nil
	}
	var a limit.Amounts
	_ = h.costs.Amounts(&a, n, costsOf(costs))
	return unitsOf(h.item, h.weighs, &a)
}

func unitsOf(it *match.Item, w *limit.Weights, a *limit.Amounts) (int64, error) {
	n, ok := w.Units(a)
	if !ok {
		return limit.MaxUnits, tooMany(it, limit.MaxUnits)
	}
	return n, nil
}

func tooMany(it *match.Item, most int64) error {
	return fmt.Errorf("limit %s makes more than %d units of the costs", it.Rule.Limit.Name, most)
}

// units is weighed after weigh found no fault.
func (r *request) units(it *match.Item) int64 {
	n, _ := r.weighed(it)
	return n
}
