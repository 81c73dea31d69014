package usage

import (
	"slices"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Usage gathers what was collected from buckets into the ledger's rows, until they are frozen into a report. Its size
// is bounded by keys and slots. Beyond MaxRows of them new keys stay in their cells, and are booked under a later
// slot.
type Usage struct {
	// Behind says that a bucket's usage found no room, so that the usage up to now
	// is not all here. The owner clears it before it collects.
	Behind bool

	rows    []ledger.Row // those merged first, then others as they came
	merged  int          // of rows, in order and each key once
	room    int          // for as many rows as the last Take had, and some more
	packed  [][]byte     // those of earlier slots, as in reports: while the ledger is away a slot costs a tenth of the memory
	within  int          // rows in packed
	slot    int64        // of the last that was collected
	units   int64
	journal *Journal // nil without
}

type counts struct{ admitted, overage, denied int64 }

// MaxRows bounds the rows that wait to be frozen: some hundred MB.
const MaxRows = 1 << 20

// Rows returns how many rows wait, those of one key that came apart included.
func (u *Usage) Rows() int { return len(u.rows) + u.within }

// Units returns how many admitted units wait.
func (u *Usage) Units() int64 { return u.units }

// Take empties the usage into rows, in the order of reports.
func (u *Usage) Take() []ledger.Row {
	for _, b := range u.packed {
		rows, _ := ledger.DecodeRows(b) // pack has seen that it can be
		u.Return(rows)
	}
	u.packed, u.within = nil, 0
	u.merge()
	rows := u.rows
	u.rows, u.merged, u.room, u.units = nil, 0, min(len(rows)+len(rows)/8, mergeFrom), 0
	return rows
}

// mergeFrom is how many rows are worth merging before they are taken.
const mergeFrom = 1 << 14

// merge puts the rows in order, each key once.
func (u *Usage) merge() {
	u.rows = ledger.MergeRows(u.rows)
	u.merged = len(u.rows)
}

// packFrom is how many rows are worth packing.
const packFrom = 1000

// turn notes the slot of what is collected from now on. The rows of earlier slots are packed. Only a clock that steps
// back adds to those, and then a key is there twice until Take.
func (u *Usage) turn(slot int64) {
	was := u.slot
	if u.slot = slot; slot == was || len(u.rows) < packFrom {
		return
	}
	u.merge()
	rows := u.rows
	u.rows, u.merged = nil, 0
	for _, part := range ledger.Split(rows) {
		b := ledger.EncodeRows(part)
		if again, err := ledger.DecodeRows(b); err != nil || len(again) != len(part) {
			units := u.units
			u.Return(part) // of a row that no report has room for
			u.units = units
			continue
		}
		u.packed, u.within = append(u.packed, slices.Clone(b)), u.within+len(part)
	}
}

// Return puts rows back that were frozen for an epoch that will not take them.
func (u *Usage) Return(rows []ledger.Row) {
	for _, r := range rows {
		u.add(r.Key(), counts{r.Admitted, r.Overage, r.Denied})
	}
}

// add adds to the row of a key. Most keys come once until they are taken, so a row is looked for only among those that
// were merged. Those have many counts for each key, as while the ledger is away.
func (u *Usage) add(key ledger.Row, c counts) {
	u.units += c.admitted
	if at, ok := u.find(key); ok {
		r := &u.rows[at]
		r.Admitted, r.Overage, r.Denied = r.Admitted+c.admitted, r.Overage+c.overage, r.Denied+c.denied
		return
	}
	if u.rows == nil {
		u.rows = make([]ledger.Row, 0, u.room)
	}
	key.Admitted, key.Overage, key.Denied = c.admitted, c.overage, c.denied
	u.rows = append(u.rows, key)
	if len(u.rows)-u.merged >= max(u.merged, mergeFrom) {
		u.merge()
	}
}

// find returns where the row of a key is, of those that were merged.
func (u *Usage) find(key ledger.Row) (at int, ok bool) {
	return slices.BinarySearchFunc(u.rows[:u.merged], key, func(r, key ledger.Row) int { return r.CompareKey(&key) })
}

// Feeder is a bucket as the ledger sees it.
type Feeder interface {
	// Collect and Cell are bucket.Bucket's.
	Collect(now int64, metered bool, book func(c, upTo bucket.Count) bucket.Booking) bucket.Collected
	Cell() *bucket.Cell
	// Row returns the key of its usage under a slot, and false where it feeds none.
	Row(slot int64) (ledger.Row, bool)
	// Metered reports whether what it admits is billed, and Overage whether it is what a soft limit admits above itself.
	Metered() bool
	Overage() bool
}

// Collected is what a look at a bucket came to.
type Collected struct {
	bucket.Collected
	Booked int64 // units put into rows
}

// Collect books what a bucket admitted and denied since the last Collect under slot (Unix seconds). now is when, for idle
// eviction. The owner's.
func (u *Usage) Collect(f Feeder, slot, now int64) Collected {
	var c counts
	var upTo bucket.Count
	got := f.Collect(now, f.Metered(), func(n, booked bucket.Count) bucket.Booking {
		key, ok := f.Row(slot)
		if !ok {
			return bucket.OfNoInterest
		}
		if !u.fits(key) {
			u.Behind = true // kept in the bucket, for another time
			return bucket.NoRoom
		}
		c, upTo = counts{admitted: n.Admitted, denied: n.Denied}, booked
		if f.Overage() {
			c.overage = c.admitted
		}
		u.turn(slot)
		u.add(key, c)
		return bucket.InARow
	})
	if c != (counts{}) {
		u.journal.booked(f.Cell(), slot, c, upTo)
	}
	return Collected{got, c.admitted}
}

// fits reports whether there is room for a row of that key.
func (u *Usage) fits(key ledger.Row) bool {
	if u.Rows() < MaxRows {
		return true
	}
	if u.merged < len(u.rows) {
		u.merge()
	}
	_, ok := u.find(key)
	return ok || u.Rows() < MaxRows
}
