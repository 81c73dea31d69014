package usage

import (
	"cmp"
	"slices"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// left is a reservation as a life's records tell of it.
type left struct {
	Reservation
	before *Reservation // as what it was known, while a late commit of it is under way; nil for nothing
	sheets []uint32     // none once it has ended
	stakes []stakeOf
}

// reservation takes the next record of one.
func (r *Recovery) reservation(kind byte, d *decoder) {
	id := ReservationID{d.int(), d.int()}
	k := r.held[id]
	switch kind {
	case recordReserved, recordLate:
		next := &left{Reservation: d.identity(id)}
		if k != nil && kind == recordLate {
			was := k.Reservation
			next.before = &was
		}
		n := d.int()
		if n != int64(sheetsFor(len(next.Costs)+1)) {
			d.fail()
		}
		for range sheetsFor(len(next.Costs) + 1) {
			next.sheets = append(next.sheets, uint32(d.int()))
		}
		next.stakes = d.stakes()
		k = next
	case recordKnown:
		k = &left{Reservation: d.identity(id)}
		d.end(&k.Reservation)
	case recordForgotten:
		delete(r.held, id)
		return
	case recordStakes, recordEnded:
		switch {
		case k == nil:
			d.fail()
		case kind == recordStakes:
			k.stakes = append(k.stakes, d.stakes()...)
		default:
			d.end(&k.Reservation)
			k.before, k.sheets, k.stakes = nil, nil, nil
		}
	}
	if d.err == nil {
		r.held[id] = k
	}
}

func (d *decoder) text() string { return string(d.bytes()) }

// identity reads what never changes of a reservation.
func (d *decoder) identity(id ReservationID) Reservation {
	k := Reservation{ReservationID: id}
	for n := d.int(); n > 0 && d.err == nil; n-- {
		k.Attributes = append(k.Attributes, limit.Attribute{Name: d.text(), Value: d.text()})
	}
	for n := d.int(); n > 0 && d.err == nil; n-- {
		k.Costs = append(k.Costs, d.text())
	}
	return k
}

func (d *decoder) end(k *Reservation) {
	k.State, k.Late, k.Ended, k.Totals = ReservationState(d.int()), d.int() != 0, d.int(), nil
	for n := d.int(); n > 0 && d.err == nil; n-- {
		k.Totals = append(k.Totals, d.int())
	}
	fits := len(k.Totals) == len(k.Costs)+1 || k.Event() && len(k.Totals) == 0
	if !fits || slices.ContainsFunc(k.Totals, func(n int64) bool { return n < 0 || n > limit.MaxUnits }) {
		d.fail()
	}
}

func (d *decoder) stakes() (all []stakeOf) {
	for d.more() {
		all = append(all, stakeOf{number: uint32(d.int()), of: uint32(d.int()), inherited: d.int() != 0})
	}
	return all
}

// lookAt reads what cells tell of reservations, and returns what they had open, by the buckets' cells. One that nobody
// was told of is dropped.
func (r *Recovery) lookAt(disk Durable) map[uint32]bucket.Crash {
	open := make(map[uint32]bucket.Crash)
	for id, k := range r.held {
		if len(k.sheets) == 0 {
			continue
		}
		which := k.look(disk)
		for _, s := range k.stakes {
			at, of := disk.At(s.number), disk.At(s.of)
			if k.State == Undecided || at == nil || of == nil {
				continue
			}
			all := open[s.of]
			all.Add((*bucket.Stake)(at), (*bucket.Cell)(of), which, s.inherited)
			open[s.of] = all
		}
		k.sheets = nil
		switch {
		case k.State != Undecided:
		case k.before != nil:
			k.Reservation = *k.before
		default:
			delete(r.held, id)
		}
	}
	return open
}

// look reads how far a reservation is, and which copy of its numbers is valid. Numbers that no reservation has are
// taken for 0: somebody else may have written the file.
func (k *left) look(disk Durable) (which int) {
	var sheets []*sheet
	for _, n := range k.sheets {
		at := disk.At(n)
		if at == nil {
			return 0
		}
		sheets = append(sheets, (*sheet)(at))
	}
	v := sheets[0][0].Load()
	state := ReservationState(v >> 2)
	if state < Open || state > Expired {
		return 0
	}
	which = int(v & 1)
	k.State, k.Late, k.Totals = state, v&2 != 0, make([]int64, len(k.Costs)+1)
	for i := range k.Totals {
		if n := total(sheets, i, which).Load(); n >= 0 && n <= limit.MaxUnits {
			k.Totals[i] = n
		}
	}
	if state != Open {
		k.Ended = sheets[0][1].Load()
	}
	return which
}

// Reservations returns the reservations that the life knew when it ended, after Finish; those that had not ended are
// Open. Before Finish it returns those that had.
func (r *Recovery) Reservations() (known []Reservation) {
	for _, k := range r.held {
		switch {
		case len(k.sheets) == 0:
			known = append(known, k.Reservation)
		case k.before != nil:
			known = append(known, *k.before)
		}
	}
	slices.SortFunc(known, func(a, b Reservation) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Number, b.Number))
	})
	return known
}
