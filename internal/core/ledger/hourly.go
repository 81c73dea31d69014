package ledger

import "slices"

// MaxCut bounds HourlyQuery.Edges.
const MaxCut = 1_000

// HourlyQuery asks what tenants' usage adds up to, by limit, meter and policy version, as of the newest block.
// It reads whole hours from roll-ups, so it costs as little late in a month as early. Slots in [From, To), Unix
// seconds. One query has many tenants: each one's hours lie together, and are read in that order.
type HourlyQuery struct {
	Tenants  []string
	From, To int64
	Limit    string // of this limit alone; empty for all
	Metered  bool   // of limits with a meter alone
	// Edges, ascending, tell usage before them apart from usage after. Hours that an edge, From or To cuts are
	// read from entries. At most MaxCut.
	Edges  []int64
	Except []int64 // policy versions left out
}

// HourlySums is the answer, in the order of tenants, starts and names, and the block that
// it is as of.
type HourlySums struct {
	Block KeptBlockInfo
	Sums  []HourlySum
}

// HourlySum is what was counted from Start on, up to the next edge. Start is an edge, or 0 before the first.
type HourlySum struct {
	Tenant  string
	Start   int64
	Limit   string
	Meter   string
	Version int64
	Plan    string // Row.Plan
	Sum
}

// ChangedTenant is a tenant with entries in blocks above a height, and the earliest slot
// that they are of.
type ChangedTenant struct {
	Tenant string
	First  int64
}

// AddedSum is what blocks above a height add to a slot. Added to a query's sums, it brings them up to the later
// block.
type AddedSum struct {
	Tenant  string
	Slot    int64
	Limit   string
	Meter   string
	Version int64
	Plan    string // Row.Plan
	Sum
}

// Start is the edge that the query counts a slot's usage from; false if it does not ask for the slot.
func (q *HourlyQuery) Start(a *AddedSum) (start int64, ok bool) {
	if a.Slot < q.From || a.Slot >= q.To || q.Limit != "" && a.Limit != q.Limit || q.Metered && a.Meter == "" || slices.Contains(q.Except, a.Version) {
		return 0, false
	}
	for _, edge := range q.Edges {
		if a.Slot >= edge {
			start = edge
		}
	}
	return start, true
}

// Hours are the hours [from, to) that are read whole, and the cut hours that are read by slot, ascending.
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
