package usage

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// KnownFor is how long a reservation that has ended is known.
const KnownFor = 10 * time.Minute

// ReservationID names a reservation: the epoch that its agent began under, and its number in that life.
type ReservationID struct{ Epoch, Number int64 }

// ReservationState says how far a reservation is.
type ReservationState int64

const (
	Undecided ReservationState = iota // nobody was told of it
	Open
	Committed
	Expired // or its agent ended: what was used is billed
)

// Reservation is a reservation as the journal knows it.
type Reservation struct {
	ReservationID
	Attributes []limit.Attribute // of its request
	Costs      []string          // the names of Totals, but for the first, which is requests
	Totals     []int64           // of each cost: what was used so far, or committed
	State      ReservationState
	Late       bool  // it was committed after it had ended
	Ended      int64 // when, Unix milliseconds; 0 while it is open
}

// Reserved writes a reservation's life down, so that a kill at any instant bills what was used until then. Of two copies
// of each number one is valid, as its state says: others write the other copy, and then switch over in one store. Its
// methods are for one caller at a time. The nil Reserved records nothing.
type Reserved struct {
	of      *Reservation
	before  *Reservation // as what it was known until then, for a late commit; nil for none
	j       *Journal
	sheets  []uint32 // cells of the state and the totals
	at      []*sheet
	stakes  []stakeOf
	current int // the copy that is valid
}

// sheet is 64 bytes of a reservation's own. The first has the state and when it ended, then two copies of three totals.
// Each further one has two copies of four totals.
type sheet [8]atomic.Int64

// stakeOf is what a reservation has of a bucket.
type stakeOf struct {
	number    uint32 // the stake's cell
	of        uint32 // the bucket's
	inherited bool
	*bucket.Stake
}

// total returns where a copy of total i is.
func total(sheets []*sheet, i, which int) *atomic.Int64 {
	if i < 3 {
		return &sheets[0][2+2*i+which]
	}
	return &sheets[1+(i-3)/4][2*((i-3)%4)+which]
}

// sheetsFor returns how many sheets so many totals take.
func sheetsFor(totals int) int { return 1 + max(totals, 0)/4 }

// Stakes is a bucket's cell that a reservation has units of.
type Stakes struct {
	Cell      *bucket.Cell // nil for none
	Inherited bool         // they are billed at a tenant below
}

// Reserve begins to record a reservation, or the late commit of one that has ended. It is Undecided: a kill bills its
// units as those of a request under way. It returns a stake for each bucket, nil for one without a cell. It returns
// nil where there is no room, or no journal. of must not be changed any more.
func (j *Journal) Reserve(of *Reservation, buckets []Stakes) (*Reserved, []*bucket.Stake) {
	if j == nil {
		return nil, nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fault != nil {
		return nil, nil
	}
	r := &Reserved{of: of, j: j}
	for range sheetsFor(len(of.Totals)) {
		number, at, err := j.disk.Cell()
		if err != nil {
			r.freeLocked()
			j.without.Add(1)
			return nil, nil
		}
		r.sheets, r.at = append(r.sheets, number), append(r.at, (*sheet)(at))
	}
	for i, n := range of.Totals {
		total(r.at, i, 0).Store(n)
	}
	stakes, ok := r.stakeLocked(buckets)
	if !ok {
		r.freeLocked()
		j.without.Add(1)
		return nil, nil
	}
	if was := j.reserved[of.ReservationID]; was != nil {
		r.before = was.Reservation
	}
	j.reserved[of.ReservationID] = &recorded{Reservation: of, live: r}
	if j.appendLocked(r.record()); j.fault != nil {
		return nil, nil
	}
	return r, stakes
}

// recorded is a reservation that the journal knows, and its cells; nil for none.
type recorded struct {
	*Reservation
	live *Reserved
}

// stakeLocked finds cells for stakes; false where there is no room.
func (r *Reserved) stakeLocked(buckets []Stakes) (stakes []*bucket.Stake, ok bool) {
	for _, b := range buckets {
		p := r.j.feeds[b.Cell]
		if p == nil {
			stakes = append(stakes, nil)
			continue
		}
		number, at, err := r.j.disk.Cell()
		if err != nil {
			return nil, false
		}
		s := stakeOf{number, p.number, b.Inherited, (*bucket.Stake)(at)}
		r.stakes = append(r.stakes, s)
		stakes = append(stakes, s.Stake)
	}
	return stakes, true
}

// More records buckets that an open reservation has units of besides. On false there is no room: their units are billed
// if the process is killed now.
func (r *Reserved) More(buckets []Stakes) (stakes []*bucket.Stake, ok bool) {
	if r == nil || len(buckets) == 0 {
		return make([]*bucket.Stake, len(buckets)), r != nil
	}
	r.j.mu.Lock()
	defer r.j.mu.Unlock()
	had := len(r.stakes)
	if stakes, ok = r.stakeLocked(buckets); !ok {
		for _, s := range r.stakes[had:] {
			r.j.disk.Free(s.number)
		}
		r.stakes = r.stakes[:had]
		r.j.without.Add(1)
		return make([]*bucket.Stake, len(buckets)), false
	}
	r.j.appendLocked(appendStakes(r.of.append([]byte{recordStakes}), r.stakes[had:]))
	return stakes, true
}

// Next returns which copy of the totals, and of each stake's units used, is to be written next.
func (r *Reserved) Next() int {
	if r == nil {
		return 0
	}
	return 1 - r.current
}

// Switch makes those that were written valid, in one store, and says how far the reservation is. ended is Unix
// milliseconds; 0 for an open one.
func (r *Reserved) Switch(state ReservationState, totals []int64, late bool, ended int64) {
	if r == nil {
		return
	}
	next := r.Next()
	for i := range r.of.Totals {
		n := int64(0)
		if i < len(totals) {
			n = totals[i]
		}
		total(r.at, i, next).Store(n)
	}
	r.at[0][1].Store(ended)
	v := int64(state)<<2 | int64(next)
	if late {
		v |= 2
	}
	r.at[0][0].Store(v)
	r.current = next
}

// End records how a reservation ended, once all its stakes are settled, and gives its cells back.
func (r *Reserved) End(as *Reservation) {
	if r == nil {
		return
	}
	j := r.j
	j.mu.Lock()
	defer j.mu.Unlock()
	j.appendLocked(as.appendEnd(as.append([]byte{recordEnded})))
	j.reserved[as.ReservationID] = &recorded{Reservation: as}
	r.freeLocked()
}

// Drop records that an Undecided reservation, or late commit, never was.
func (r *Reserved) Drop() {
	if r == nil {
		return
	}
	j := r.j
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.before != nil {
		j.appendLocked(r.before.appendKnown())
		j.reserved[r.of.ReservationID] = &recorded{Reservation: r.before}
	} else {
		j.appendLocked(r.of.append([]byte{recordForgotten}))
		delete(j.reserved, r.of.ReservationID)
	}
	r.freeLocked()
}

// freeLocked gives the cells back.
func (r *Reserved) freeLocked() {
	for _, n := range r.sheets {
		r.j.disk.Free(n)
	}
	for _, s := range r.stakes {
		r.j.disk.Free(s.number)
	}
	r.sheets, r.at, r.stakes = nil, nil, nil
}

// Know records a reservation that has ended: of an earlier life, or without a record until then.
func (j *Journal) Know(as *Reservation) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.appendLocked(as.appendKnown())
	j.reserved[as.ReservationID] = &recorded{Reservation: as}
}

// Forget drops a reservation that nobody is to know any more.
func (j *Journal) Forget(id ReservationID) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.reserved, id)
}

// append writes which reservation it is.
func (id ReservationID) append(b []byte) []byte {
	return binary.AppendVarint(binary.AppendVarint(b, id.Epoch), id.Number)
}

// appendIdentity writes what never changes.
func (k *Reservation) appendIdentity(b []byte) []byte {
	b = k.ReservationID.append(b)
	b = binary.AppendVarint(b, int64(len(k.Attributes)))
	for _, a := range k.Attributes {
		b = appendText(appendText(b, a.Name), a.Value)
	}
	b = binary.AppendVarint(b, int64(len(k.Costs)))
	for _, name := range k.Costs {
		b = appendText(b, name)
	}
	return b
}

// appendEnd writes how it ended.
func (k *Reservation) appendEnd(b []byte) []byte {
	late := int64(0)
	if k.Late {
		late = 1
	}
	for _, n := range [...]int64{int64(k.State), late, k.Ended, int64(len(k.Totals))} {
		b = binary.AppendVarint(b, n)
	}
	for _, n := range k.Totals {
		b = binary.AppendVarint(b, n)
	}
	return b
}

// appendKnown writes one that has ended whole.
func (k *Reservation) appendKnown() []byte { return k.appendEnd(k.appendIdentity([]byte{recordKnown})) }

// record writes one that lives.
func (r *Reserved) record() []byte {
	kind := byte(recordReserved)
	if r.before != nil {
		kind = recordLate
	}
	b := r.of.appendIdentity([]byte{kind})
	b = binary.AppendVarint(b, int64(len(r.sheets)))
	for _, n := range r.sheets {
		b = binary.AppendVarint(b, int64(n))
	}
	return appendStakes(b, r.stakes)
}

func appendStakes(b []byte, stakes []stakeOf) []byte {
	for _, s := range stakes {
		inherited := int64(0)
		if s.inherited {
			inherited = 1
		}
		for _, n := range [...]int64{int64(s.number), int64(s.of), inherited} {
			b = binary.AppendVarint(b, n)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendVarint(b, int64(len(s))), s...)
}

// writeReserved writes what is known of reservations into a log that is made anew.
func (j *Journal) writeReserved(add func(record []byte) error) error {
	for _, k := range j.reserved {
		if k.live == nil {
			if err := add(k.appendKnown()); err != nil {
				return err
			}
			continue
		}
		if before := k.live.before; before != nil {
			if err := add(before.appendKnown()); err != nil {
				return err
			}
		}
		if err := add(k.live.record()); err != nil {
			return err
		}
	}
	return nil
}
