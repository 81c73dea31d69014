package client

import (
	"maps"
	"slices"

	"github.com/f4ee788f/quota/internal/core/agent"
)

// excess is what limits may have been exceeded by, by name, which bounds it as it does the trials. Buckets on trial
// deny nobody, and are left out.
type excess map[string]beyond

// beyond is units.
type beyond struct{ late, outage int64 }

func (x *excess) add(d *decided, e *agent.Entry, more beyond) {
	if more == (beyond{}) || e.OnTrial() {
		return
	}
	if *x == nil {
		*x = make(excess)
	}
	name := d.nameOf(e.Limit())
	sum := (*x)[name]
	(*x)[name] = beyond{sum.late + more.late, sum.outage + more.outage}
}

// into writes the sums, and those by limit. A limit that the policies name is there from the beginning,
// with nothing: what watches a count sees it rise, and not only appear.
func (x excess) into(s *Stats, named map[string]bool) {
	all := maps.Clone(x)
	if all == nil {
		all = make(excess)
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
		s.Excess = append(s.Excess, Excess{Limit: name, LateSpends: b.late, OutageUnits: b.outage})
	}
}
