package ledger

import "slices"

// MaxCut bounds HourlyQuery.Edges.
const MaxCut = 1_000

// HourlyQuery asks what a tenant's usage adds up to, by limit, meter and policy version, as
// of the newest block: of whole hours by roll-ups, so that it costs as little early in a
// month as late in it. Slots in [From, To), Unix seconds.
type HourlyQuery struct {
	Tenant   string
	From, To int64
	Limit    string // of this limit alone; empty for all
	Metered  bool   // of limits with a meter alone
	// Edges, ascending, tell usage apart that is before or after them. Hours that they,
	// From and To are within are read from entries. At most MaxCut.
	Edges  []int64
	Except []int64 // policy versions left out
}

// HourlySum is what was counted from the last of the edges on; from 0 before the first.
type HourlySum struct {
	Start   int64
	Limit   string
	Meter   string
	Version int64
	Sum
}

// ChangedTenant is a tenant with entries in blocks above a height, and the earliest slot
// that they are of.
type ChangedTenant struct {
	Tenant string
	First  int64
}

// Hours are the hours that are read whole, [from, to), and those of which slots are read,
// ascending.
func (q *HourlyQuery) Hours() (from, to int64, cut []int64) {
	from, to = q.From+mod(-q.From, 3600), q.To-mod(q.To, 3600)
	var all []int64
	for _, edge := range q.Edges {
		if mod(edge, 3600) != 0 {
			all = append(all, edge-mod(edge, 3600))
		}
	}
	if from != q.From {
		all = append(all, from-3600)
	}
	if to != q.To {
		all = append(all, to)
	}
	slices.Sort(all)
	for _, hour := range slices.Compact(all) {
		if hour+3600 > q.From && hour < q.To {
			cut = append(cut, hour)
		}
	}
	return from, max(from, to), cut
}
