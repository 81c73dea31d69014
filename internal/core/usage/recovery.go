package usage

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/ledger"
)

// mostUnsealed bounds the unsealed units of a life. Somebody may have put any number there, and the sum with all else
// has to stay below ledger.MaxTotal.
const mostUnsealed = ledger.MaxTotal / 4

// Recovery goes through the records of a life that ended.
type Recovery struct {
	// Sealed says that records are under a secret and cells are not. What a cell has counted beyond its records is unsealed:
	// it goes into reports of its own, which the ledger puts into quarantine.
	Sealed bool
	// Unknown is cells that are not there, though records tell of them. Under a secret what is sealed of them is settled.
	Unknown int
	// Cut is unsealed units that found no room.
	Cut int64

	acted   bool // it has records of more than what lives before knew
	outbox  *Outbox
	feeds   map[uint32]*feed
	held    map[ReservationID]*left // reservations
	slot    int64
	room    int64                                  // for units that are unsealed
	counted bool                                   // it had cells: the server may know it as a holder of leases
	through func(e ledger.Epoch, seq, total int64) // see NewHistory; nil for nobody
}

// NewRecovery returns a recovery of an agent's epoch.
func NewRecovery(agent string, epoch int64) *Recovery {
	return &Recovery{outbox: NewOutbox(agent, epoch), feeds: make(map[uint32]*feed), held: make(map[ReservationID]*left), room: mostUnsealed}
}

// Record takes the next record.
func (r *Recovery) Record(record []byte) error {
	d := decoder{rest: record}
	kind := d.byte()
	r.acted = r.acted || kind != recordKnown
	switch kind {
	case recordCells:
		r.counted = true
		for d.more() {
			p := d.feed()
			r.feeds[p.number] = p
		}
	case recordGone:
		for d.more() {
			delete(r.feeds, uint32(d.int()))
		}
	case recordSlot:
		r.slot = d.int()
	case recordBooked:
		for d.more() {
			r.booked(&d)
		}
	case recordFrozen:
		r.frozen(&d)
	case recordReceived:
		r.received(&d)
	case recordOutbox:
		r.standing(&d)
	case recordOrigin:
		r.outbox.origin = ledger.Origin{Epoch: d.int(), Total: d.int()}
	case recordReserved, recordLate, recordStakes, recordEnded, recordKnown, recordForgotten:
		r.reservation(kind, &d)
	default:
		return fmt.Errorf("%w: of kind %q", ErrRecord, kind)
	}
	return d.err
}

// Acted reports whether the life did anything. By then it had all that lives before it knew of reservations.
func (r *Recovery) Acted() bool { return r.acted }

// Tenants are those of which there were cells when the life ended.
func (r *Recovery) Tenants() []string {
	tenants := make([]string, 0, len(r.feeds))
	for _, p := range r.feeds {
		if p.key.Tenant != "" {
			tenants = append(tenants, p.key.Tenant)
		}
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

func (r *Recovery) booked(d *decoder) {
	slot := d.int()
	unsealed := slot <= slotUnsealed
	if unsealed {
		slot = slotUnsealed - slot
	}
	p := r.feeds[uint32(d.int())]
	if p == nil {
		d.fail()
		return
	}
	if slot == slotSealed {
		p.sealed = bucket.Count{Admitted: p.rowed.Admitted + d.int(), Denied: p.rowed.Denied + d.int()}
		return
	}
	c := counts{admitted: d.int(), denied: d.int()}
	p.rowed = bucket.Count{Admitted: d.int(), Denied: d.int()}
	if unsealed {
		r.room -= c.admitted + c.denied
	}
	r.book(p, slot, c, unsealed)
}

func (r *Recovery) book(p *feed, slot int64, c counts, unsealed bool) {
	if p.overage {
		c.overage = c.admitted
	}
	key := p.key
	key.Slot = slot
	if unsealed {
		r.outbox.unsealed.add(key, c)
	} else {
		r.outbox.Usage.add(key, c)
	}
}

func (r *Recovery) frozen(d *decoder) {
	o := r.outbox
	o.Usage.Take()
	o.unsealed.Take()
	o.turning = d.byte() == 1
	for d.more() {
		f := d.reportOf(o)
		o.seq, o.total, o.through, o.closed = f.Seq, f.After, f.Through, f.Closed
		o.reports = append(o.reports, f)
	}
}

// standing takes how far the outbox was.
func (r *Recovery) standing(d *decoder) {
	o := r.outbox
	o.epoch, o.seq, o.total, o.through = d.int(), d.int(), d.int(), d.int()
	flags := d.int()
	o.closed, o.turning = flags&1 != 0, flags&2 != 0
	o.settled, o.acknowledged, o.asideReports, o.asideUnits = d.int(), d.int(), d.int(), d.int()
	seq, total := o.seq, o.total
	for d.more() {
		p := d.reportOf(o)
		o.reports = append(o.reports, p)
		seq, total = seq-1, total-(p.After-p.Before) // those that wait are its last
	}
	if d.err == nil && r.through != nil {
		r.through(ledger.Epoch{Agent: o.agent, Epoch: o.epoch}, seq, total)
	}
}

func (r *Recovery) received(d *decoder) {
	next := d.int()
	var receipts []ledger.Receipt
	for d.more() {
		receipts = append(receipts, ledger.Receipt{Status: ledger.Status(d.int()), NextSeq: d.int()})
	}
	if len(receipts) > len(r.outbox.reports) {
		d.fail()
		return
	}
	r.outbox.receive(slices.Clone(r.outbox.reports[:len(receipts)]), receipts, next)
}

// Finish returns what is to be settled of the life: reports that were not acknowledged, and a last one of what cells
// have beyond that. Once that is recorded it is the same however often the life is recovered. It is empty for a life
// that was settled whole, or never had a bucket.
func (r *Recovery) Finish(disk Durable) (*Outbox, error) {
	o := r.outbox
	o.journal = NewJournal(disk)
	o.journal.slot = r.slot
	o.Usage.journal = o.journal
	open := r.lookAt(disk)
	if !o.closed || o.turning {
		if err := r.rests(disk, open); err != nil {
			return nil, err
		}
	}
	if r.counted {
		o.Freeze(o.through, true) // a life that counted nothing ends as well: the ledger waits for its holders
	}
	o.FreezeRest()
	return o, o.journal.fault
}

// rests books what cells have beyond what was booked. What is unsealed comes last, the least first: a number that
// somebody wrote into one cell takes no room from what others counted. open is the stakes that are in the cells.
func (r *Recovery) rests(disk Durable, open map[uint32]bucket.Crash) error {
	type beyond struct {
		p    *feed
		has  bucket.Count
		left counts
	}
	var unsealed []beyond
	for _, number := range slices.Sorted(maps.Keys(r.feeds)) {
		p, at := r.feeds[number], disk.At(number)
		if at == nil && !r.Sealed {
			return fmt.Errorf("%w: cell %d is not there", ErrRecord, number)
		}
		if r.Sealed {
			left, has := p.beyond(p.sealed)
			r.bookRest(p, r.slot, left, has)
		}
		if at == nil {
			r.Unknown++
			continue
		}
		c := (*bucket.Cell)(at)
		left, has := p.beyond(bucket.Count{Admitted: c.TakenOwn(open[number]), Denied: c.Denied()})
		if r.Sealed {
			unsealed = append(unsealed, beyond{p, has, left})
		} else {
			r.bookRest(p, r.slot, left, has)
		}
	}
	slices.SortStableFunc(unsealed, func(a, b beyond) int {
		return cmp.Compare(max(a.left.admitted, a.left.denied), max(b.left.admitted, b.left.denied))
	})
	for _, u := range unsealed {
		left := counts{admitted: min(u.left.admitted, r.room)}
		r.room -= left.admitted
		left.denied = min(u.left.denied, r.room)
		r.room -= left.denied
		r.Cut += min(u.left.admitted-left.admitted, math.MaxInt64-r.Cut)
		r.bookRest(u.p, slotUnsealed-r.slot, left, u.has)
	}
	return nil
}

// beyond returns what a cell has beyond what was booked, and up to which counts. After a loss of power it may be behind
// that.
func (p *feed) beyond(has bucket.Count) (left counts, upTo bucket.Count) {
	upTo = later(has, p.rowed)
	left.denied = upTo.Denied - p.rowed.Denied
	if p.key.Meter != "" {
		left.admitted = upTo.Admitted - p.rowed.Admitted
	}
	return left, upTo
}

func (r *Recovery) bookRest(p *feed, slot int64, left counts, upTo bucket.Count) {
	if left == (counts{}) {
		return
	}
	r.book(p, r.slot, left, slot <= slotUnsealed)
	r.outbox.journal.bookedLocked(p, slot, left, upTo)
}

// RecoveredLine is usage that a recovery is to settle, for people.
type RecoveredLine struct {
	Tenant, Meter    string
	Admitted, Denied int64
}

// Lines sums up what waits in the outbox by tenant and meter.
func (o *Outbox) Lines() ([]RecoveredLine, error) {
	sum := make(map[[2]string]RecoveredLine)
	for i := range o.reports {
		rows, err := ledger.DecodeRows(o.reports[i].Payload)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			k := [2]string{row.Tenant, row.Meter}
			l := sum[k]
			sum[k] = RecoveredLine{row.Tenant, row.Meter, l.Admitted + row.Admitted, l.Denied + row.Denied}
		}
	}
	return slices.SortedFunc(maps.Values(sum), func(a, b RecoveredLine) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Meter, b.Meter))
	}), nil
}

// History goes through the records of a life, or of a part of one, for the reports that the ledger acknowledged. They
// can be sent again if the ledger has forgotten them.
type History struct{ r *Recovery }

// NewHistory calls report for each acknowledged report, in their order. Where a log goes on from one that was put away
// it calls through. That has the last number acknowledged by then, and all units of the epoch.
func NewHistory(agent string, epoch int64, report func(ledger.Report), through func(e ledger.Epoch, seq, total int64)) *History {
	r := NewRecovery(agent, epoch)
	r.outbox.acknowledge, r.through = report, through
	return &History{r}
}

// Record takes the next record. What cells feed and what was booked of them is not gone into.
func (h *History) Record(record []byte) error {
	switch record[0] {
	case recordFrozen, recordReceived, recordOutbox, recordOrigin:
		return h.r.Record(record)
	}
	return nil
}
