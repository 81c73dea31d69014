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
	recordPlanless = 'C' // likewise, of before rows had a plan
	recordOldCells = 'c' // of cells that have what was refused second
	recordBooked   = 'b' // what was booked: the slot, and of each cell its number, admitted, denied, and the counts up to which
	recordGone     = 'x' // of cells, by number: they feed nothing any more, whatever is in them
	recordSlot     = 's' // the slot that usage is of from now on
	recordFrozen   = 'f' // all that was booked is in these reports
	recordReceived = 'r' // what was said of reports
	recordOutbox   = 'o' // how far the epoch is, and the reports that wait, when nothing is booked that is not in them
	recordOrigin   = 'p' // the origin of the epoch of the record of the outbox that comes next, where it has one
)

// maxRecord is the bytes at which a record of many buckets ends.
const maxRecord = 1 << 20

// feed is what a journal knows of a cell: the row that it feeds.
type feed struct {
	number  uint32
	overage bool
	old     bool       // see recordOldCells
	key     ledger.Row // that it feeds, without the slot

	rowed bucket.Count // of its counts, those booked
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
	closed := int64(0)
	if r.Closed {
		closed = 1
	}
	for _, n := range [...]int64{r.Seq, r.Before, r.After, r.Through, closed} {
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

func (d *decoder) feed(plans bool) *feed {
	p := &feed{number: uint32(d.int()), overage: d.int() == 1}
	p.key.Version, p.rowed.Admitted, p.rowed.Denied = d.int(), d.int(), d.int()
	p.key.Tenant, p.key.Limit, p.key.Meter, p.key.Attributes = string(d.bytes()), string(d.bytes()), string(d.bytes()), string(d.bytes())
	if plans {
		p.key.Plan = string(d.bytes())
	}
	return p
}

func (d *decoder) reportOf(o *Outbox) ledger.Report {
	r := ledger.Report{Seq: d.int(), Before: d.int(), After: d.int(), Through: d.int(), Closed: d.int() == 1}
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
