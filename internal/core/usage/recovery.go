package usage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Recovery goes through the records of a life that ended.
type Recovery struct {
	outbox  *Outbox
	feeds   map[uint32]*feed
	slot    int64
	counted bool                                   // it had cells: the server may know it as a holder of leases
	through func(e ledger.Epoch, seq, total int64) // see NewHistory; nil for nobody
}

// NewRecovery returns a recovery of an agent's epoch.
func NewRecovery(agent string, epoch int64) *Recovery {
	return &Recovery{outbox: NewOutbox(agent, epoch), feeds: make(map[uint32]*feed)}
}

// Record takes the next record.
func (r *Recovery) Record(record []byte) error {
	d := decoder{rest: record}
	switch kind := d.byte(); kind {
	case recordCells, recordPlanless, recordOldCells:
		r.counted = true
		for d.more() {
			p := d.feed(kind == recordCells)
			p.old = kind == recordOldCells
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
	default:
		return fmt.Errorf("%w: of kind %q", ErrRecord, kind)
	}
	return d.err
}

func (r *Recovery) booked(d *decoder) {
	slot, number := d.int(), uint32(d.int())
	c := counts{admitted: d.int(), denied: d.int()}
	p := r.feeds[number]
	if p == nil {
		d.fail()
		return
	}
	p.rowed = bucket.Count{Admitted: d.int(), Denied: d.int()}
	r.book(p, slot, c)
}

func (r *Recovery) book(p *feed, slot int64, c counts) {
	if p.overage {
		c.overage = c.admitted
	}
	key := p.key
	key.Slot = slot
	r.outbox.Usage.add(key, c)
}

func (r *Recovery) frozen(d *decoder) {
	o := r.outbox
	o.Usage.Take()
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

// Finish returns what is to be settled of the life: its reports that were not acknowledged and, as the last of
// its epoch, one of all that the cells have beyond what was booked. Once that is recorded it is the same however
// often the life is recovered. Of a life that was settled whole nothing is left, nor of one that never had a bucket.
func (r *Recovery) Finish(disk Durable) (*Outbox, error) {
	o := r.outbox
	o.journal = NewJournal(disk)
	o.journal.slot = r.slot
	o.Usage.journal = o.journal
	if !o.closed || o.turning {
		for _, number := range slices.Sorted(maps.Keys(r.feeds)) {
			p := r.feeds[number]
			at := disk.At(number)
			if at == nil {
				return nil, fmt.Errorf("%w: cell %d is not there", ErrRecord, number)
			}
			r.rest(p, (*bucket.Cell)(at))
		}
	}
	if r.counted {
		o.Freeze(o.through, true) // a life that counted nothing ends as well: the ledger waits for its holders
	}
	o.FreezeRest()
	return o, o.journal.fault
}

// rest books what a cell has beyond what was booked. After a loss of power it may be behind that.
func (r *Recovery) rest(p *feed, c *bucket.Cell) {
	if p.old {
		c = c.Reordered()
	}
	own, denied := max(c.TakenOwn(), p.rowed.Admitted), max(c.Denied(), p.rowed.Denied)
	left := counts{denied: denied - p.rowed.Denied}
	if p.key.Meter != "" {
		left.admitted = own - p.rowed.Admitted
	}
	if left == (counts{}) {
		return
	}
	r.book(p, r.slot, left)
	r.outbox.journal.bookedLocked(p, r.slot, left, bucket.Count{Admitted: own, Denied: denied})
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

// History goes through the records of a life, or of a part of one, for the reports that the ledger
// acknowledged: what it may be sent again, should it have forgotten them.
type History struct{ r *Recovery }

// NewHistory calls report for each report that was acknowledged, in their order, and through where a log goes on from one
// that was put away: with how far the epoch was acknowledged by then, its last number and all its units.
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
