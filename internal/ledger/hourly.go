package ledger

import "slices"

// MaxCut bounds HourlyQuery.Cut.
const MaxCut = 1_000

// HourlyQuery asks what a tenant's usage adds up to, by limit, meter and policy version, as
// of the newest block: of whole hours by roll-ups, so that it costs as little early in a
// month as late in it. Slots in [From, To), Unix seconds.
type HourlyQuery struct {
	Tenant   string
	From, To int64
	Limit    string // of this limit alone; empty for all
	Metered  bool   // of limits with a meter alone
	ByHour   bool   // hours told apart
	// Cut are hours of which slots are told apart, from entries. Those that From and To
	// are within are cut anyway. At most MaxCut.
	Cut    []int64
	Except []int64 // policy versions left out
}

// HourlySum is what was counted from a time on: an hour, or a slot of one that is cut. It is 0
// of all whole hours together.
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
	all := slices.Clone(q.Cut)
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
