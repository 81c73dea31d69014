package session

import (
	"maps"
	"slices"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/renewal"
)

// overshoot is what limits may have been exceeded by, by name, which bounds it as it does the trials. Buckets on trial
// deny nobody, and are left out.
type overshoot map[string]renewal.Excess

func (x *overshoot) add(d *decided, e *agent.Entry, more renewal.Excess) {
	if more == (renewal.Excess{}) || e.OnTrial() {
		return
	}
	if *x == nil {
		*x = make(overshoot)
	}
	name := d.nameOf(e.Limit())
	sum := (*x)[name]
	(*x)[name] = renewal.Excess{Late: sum.Late + more.Late, Outage: sum.Outage + more.Outage}
}

// into writes the sums, and those by limit. A limit that the policies name is there from the beginning,
// with nothing: what watches a count sees it rise, and not only appear.
func (x overshoot) into(s *Stats, named map[string]bool) {
	all := maps.Clone(x)
	if all == nil {
		all = make(overshoot)
	}
	for name := range named {
		all[name] = x[name]
	}
	if named != nil {
		all[otherLimits] = x[otherLimits]
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b := all[name]
		s.LateSpends += b.Late
		s.OutageUnits += b.Outage
		s.Overshoot = append(s.Overshoot, Overshoot{Limit: name, LateSpends: b.Late, OutageUnits: b.Outage})
	}
}
