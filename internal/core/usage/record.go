package usage

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Kinds of records. All numbers in them are varints, and strings have their length before them.
//
// Of many buckets there are several, each of about maxRecord bytes, so that none is more than a reader takes.
const (
	recordCells    = 'D' // what row cells feed from now on: of each, a feed
	recordBooked   = 'b' // what was booked: the slot, and of each cell its number, admitted, denied, and the counts up to which
	recordGone     = 'x' // of cells, by number: they feed nothing any more, whatever is in them
	recordSlot     = 's' // the slot that usage is of from now on
	recordFrozen   = 'f' // all that was booked is in these reports
	recordReceived = 'r' // what was said of reports
	recordOutbox   = 'o' // how far the epoch is, and the reports that wait, when nothing is booked that is not in them
	recordOrigin   = 'p' // the origin of the epoch of the record of the outbox that comes next, where it has one

	// Of reservations; see reserved.go.
	recordReserved  = 'R' // what it is, its sheets, and its stakes: of each the cell, the bucket's cell, and whether inherited
	recordLate      = 'L' // likewise, of one that had ended and is being committed
	recordStakes    = 'S' // further stakes of one that lives
	recordEnded     = 'E' // how one ended that lived; its cells are free
	recordKnown     = 'K' // one that has ended: what it is, and how it ended
	recordForgotten = 'F' // one that never was
)

// In place of a slot in recordBooked.
const (
	slotSealed   = -1 // nothing is booked; the cell's number follows, and what it has counted beyond what was booked
	slotUnsealed = -2 // less the slot: what is booked is unsealed (Recovery.Sealed)
)

// maxRecord is the bytes at which a record of many buckets ends.
const maxRecord = 1 << 20

// feed is what a journal knows of a cell: the row that it feeds.
type feed struct {
	number  uint32
	overage bool
	key     ledger.Row // that it feeds, without the slot

	rowed  bucket.Count // of its counts, those booked
	sealed bucket.Count // and those of which there is a record, where it is later
	seen   uint64       // the cell's mark at the last seal
}

// later is the later of two counts of a cell.
func later(a, b bucket.Count) bucket.Count {
	return bucket.Count{Admitted: max(a.Admitted, b.Admitted), Denied: max(a.Denied, b.Denied)}
}

// append writes how far the outbox is.
func (o *Outbox) append(b []byte) []byte {
	flags := int64(0)
	if o.closed {
		flags |= 1
	}
	if o.turning {
		flags |= 2
	}
	for _, n := range [...]int64{o.epoch, o.seq, o.total, o.through, flags, o.settled, o.acknowledged, o.asideReports, o.asideUnits} {
		b = binary.AppendVarint(b, n)
	}
	for i := range o.reports {
		b = appendReport(b, &o.reports[i])
	}
	return b
}

// feeds gathers what many cells feed, and how far they are sealed, into few records: each costs a write, and under a
// secret a seal.
type feeds struct {
	add    func(record []byte) error
	record []byte
	seals  []byte // written behind what is before them: a feed drops the seals of its cell
}

func (f *feeds) write(p *feed) error {
	if len(f.record) == 0 {
		f.record, f.seals = append(f.record, recordCells), append(f.seals, recordBooked)
	}
	f.record = p.append(f.record)
	if c := later(p.sealed, p.rowed); c != p.rowed {
		for _, n := range [...]int64{slotSealed, int64(p.number), c.Admitted - p.rowed.Admitted, c.Denied - p.rowed.Denied} {
			f.seals = binary.AppendVarint(f.seals, n)
		}
	}
	if len(f.record) < maxRecord {
		return nil
	}
	return f.end()
}

// end writes what is gathered.
func (f *feeds) end() (err error) {
	if len(f.record) > 1 {
		err = f.add(f.record)
	}
	if len(f.seals) > 1 && err == nil {
		err = f.add(f.seals)
	}
	f.record, f.seals = f.record[:0], f.seals[:0]
	return err
}

// append writes a feed.
func (p *feed) append(b []byte) []byte {
	overage := int64(0)
	if p.overage {
		overage = 1
	}
	for _, n := range [...]int64{int64(p.number), overage, p.key.Version, p.rowed.Admitted, p.rowed.Denied} {
		b = binary.AppendVarint(b, n)
	}
	for _, s := range [...]string{p.key.Tenant, p.key.Limit, p.key.Meter, p.key.Attributes, p.key.Plan} {
		b = append(binary.AppendVarint(b, int64(len(s))), s...)
	}
	return b
}

func appendReport(b []byte, r *ledger.Report) []byte {
	flags := int64(0)
	if r.Closed {
		flags |= 1
	}
	if r.Unsealed {
		flags |= 2
	}
	for _, n := range [...]int64{r.Seq, r.Before, r.After, r.Through, flags} {
		b = binary.AppendVarint(b, n)
	}
	return append(binary.AppendVarint(b, int64(len(r.Payload))), r.Payload...)
}

// ErrRecord means that a record is none that a journal wrote.
var ErrRecord = errors.New("usage: no record of a journal")

// decoder reads a record.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail() {
	d.err, d.rest = ErrRecord, nil
}

func (d *decoder) more() bool { return len(d.rest) > 0 }

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail()
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) bytes() []byte {
	n := d.int()
	if n < 0 || n > int64(len(d.rest)) {
		d.fail()
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) feed() *feed {
	p := &feed{number: uint32(d.int()), overage: d.int() == 1}
	p.key.Version, p.rowed.Admitted, p.rowed.Denied = d.int(), d.int(), d.int()
	p.key.Tenant, p.key.Limit, p.key.Meter = string(d.bytes()), string(d.bytes()), string(d.bytes())
	p.key.Attributes, p.key.Plan = string(d.bytes()), string(d.bytes())
	return p
}

func (d *decoder) reportOf(o *Outbox) ledger.Report {
	r := ledger.Report{Seq: d.int(), Before: d.int(), After: d.int(), Through: d.int()}
	flags := d.int()
	r.Closed, r.Unsealed = flags&1 != 0, flags&2 != 0
	if b := d.bytes(); len(b) > 0 {
		r.Payload = slices.Clone(b)
	}
	r.Agent, r.Epoch = o.agent, o.epoch
	if r.Seq == 1 {
		r.Origin = o.origin
	}
	r.Digest = r.Sum()
	return r
}
