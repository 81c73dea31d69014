package ledger

import (
	"cmp"
	"slices"
	"time"
)

// SealedQuery asks what the sealed entries of a tenant add up to, for statements. Entries up to a height never
// change, so reads at one height agree whenever they are made.
type SealedQuery struct {
	Tenant string
	Height int64 // entries of blocks up to it; 0 for the newest block
	Since  int64 // tells entries of blocks above it apart
	Late   bool  // asks for the earliest late slot too
	// Slots in [From, To), Unix seconds.
	From, To int64
	Except   []int64 // policy versions left out: those that were only tried beside another
	// Hourly asks for whole hours as one, dated at their beginning. Hours of Cut, and those that the range
	// cuts, stay divided by slot. At the newest block whole hours are read from roll-ups: one for an hour's
	// many entries. Late is then told of none.
	Hourly bool
	Cut    []int64 // hours, Unix seconds
}

// Divided are the hours that are told by slot although whole hours are asked for.
func (q *SealedQuery) Divided() []int64 {
	hours := slices.Clone(q.Cut)
	for _, edge := range []int64{q.From, q.To} {
		if cut := mod(edge, 3600); cut != 0 {
			hours = append(hours, edge-cut)
		}
	}
	slices.Sort(hours)
	return slices.Compact(hours)
}

// SealedSums is the answer, as of a block.
type SealedSums struct {
	Block KeptBlockInfo // zero where nothing was ever folded
	Usage []SealedUsage // by slot, meter, version, plan, and those that are late after others
	// Late is the earliest slot before From with an entry above Since, where that was asked for; 0 for none.
	Late int64
	// Complete says through when all usage of the tenant is in blocks up to this one, but for that of Lost. Lagging
	// says which agents hold it back. Only an answer of the newest block has them.
	Complete time.Time
	Lagging  []string
	Lost     Losses
}

// SealedUsage is what the entries of a slot (or whole hour), meter, policy version and plan add up to.
type SealedUsage struct {
	Slot     int64
	Meter    string
	Version  int64
	Plan     string // Row.Plan
	Admitted int64  // overage included
	Overage  int64
	Late     bool // of blocks above Since
}

// Unfolded corrects a completeness for usage of tenants that is settled, but not in a block yet.
type Unfolded struct {
	Tenants []string // nil for all
	touched map[Epoch]bool
	first   int64 // the earliest slot of the tenants'; 0 for none
}

// Report adds a report that is not folded.
func (u *Unfolded) Report(p *Pending) error {
	rows, err := p.Rows()
	if err == nil && u.rows(rows) {
		u.Touched(p.ID.Epoch)
	}
	return err
}

// Correction adds a correction that is not folded.
func (u *Unfolded) Correction(c *Correction) error {
	rows, err := c.Entries()
	u.rows(rows)
	return err
}

// Touched says that the epoch settled usage of one of the tenants.
func (u *Unfolded) Touched(e Epoch) {
	if u.touched == nil {
		u.touched = make(map[Epoch]bool)
	}
	u.touched[e] = true
}

func (u *Unfolded) rows(rows []Row) (any bool) {
	for i := range rows {
		if u.Tenants != nil && !slices.Contains(u.Tenants, rows[i].Tenant) {
			continue
		}
		any = true
		if u.first == 0 || rows[i].Slot < u.first {
			u.first = rows[i].Slot
		}
	}
	return any
}

// Complete is Completeness of the tenants in blocks alone: unfolded usage does not count as in.
func (u *Unfolded) Complete(epochs []Frontier, settled bool, now time.Time, slot time.Duration) Completed {
	c := Completeness(epochs, func(e Epoch) bool { return u.touched[e] }, settled, now, slot)
	if first := time.Unix(u.first, 0).UTC(); u.first != 0 && first.Before(c.Through) {
		c.Through = first
	}
	return c
}

// SortSealed puts usage in its order.
func SortSealed(all []SealedUsage) {
	slices.SortFunc(all, func(a, b SealedUsage) int {
		late := func(u SealedUsage) int {
			if u.Late {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Meter, b.Meter), cmp.Compare(a.Version, b.Version),
			cmp.Compare(a.Plan, b.Plan), cmp.Compare(late(a), late(b)))
	})
}
