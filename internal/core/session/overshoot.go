package session

import (
	"maps"
	"slices"

	"github.com/f4ee788f/quota/internal/core/agent"
)

// overshoot is what limits may have been exceeded by, by name, which bounds it as it does the trials. Buckets on trial
// deny nobody, and are left out.
type overshoot map[string]beyond

// beyond is units.
type beyond struct{ late, outage int64 }

func (x *overshoot) add(d *decided, e *agent.Entry, more beyond) {
	if more == (beyond{}) || e.OnTrial() {
		return
	}
	if *x == nil {
		*x = make(overshoot)
	}
	name := d.nameOf(e.Limit())
	sum := (*x)[name]
	(*x)[name] = beyond{sum.late + more.late, sum.outage + more.outage}
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
		s.LateSpends += b.late
		s.OutageUnits += b.outage
		s.Overshoot = append(s.Overshoot, Overshoot{Limit: name, LateSpends: b.late, OutageUnits: b.outage})
	}
}
