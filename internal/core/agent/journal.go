package agent

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Durable is what a journal needs of the disk; internal/journal has it.
type Durable interface {
	// Append writes a record down, after all before it. After an error it takes no more, and
	// nothing is ever recovered from what was written.
	Append(record []byte) error
	// Cell returns 64 bytes of memory that outlive the process, zero and aligned to as many, and
	// their number. It fails where there is no room.
	Cell() (number uint32, at unsafe.Pointer, err error)
	// Free takes a cell back that nobody can reach.
	Free(number uint32)
	// Size returns the bytes of all records.
	Size() int64
	// Rotate has the records that write adds, and those that are appended from then on, take the place of all
	// once put has returned; before that, and where it fails, all stay. put waits for the disk, as nothing
	// else here does, and is called once, while others go on.
	Rotate(write func(add func(record []byte) error) error) (put func() error, err error)
	// At returns the memory of a cell of an earlier life; nil where it had none of that number.
	At(number uint32) unsafe.Pointer
}

// Journal writes down what a crash of the agent must not take. Buckets that feed the ledger count
// in cells that outlive the process; for each a record says what row it feeds, before it is first used. What is
// booked of a cell is recorded with the count up to which it is, and reports are recorded before they
// are sent, with all that is said of them. So a recovery is what was recorded, gone through again
// (Recovery), and what the cells have beyond what was booked.
//
// The nil Journal records nothing.
type Journal struct {
	mu    sync.Mutex
	disk  Durable
	feeds map[*cell]*feed
	batch []byte // of what is booked and not recorded yet
	slot  int64
	fault error // why nothing is recorded any more
	least int64 // bytes that the log has at least before it is made anew
	anew  bool  // that is under way

	without atomic.Int64 // buckets that found no room
}

// feed is what a journal knows of a cell: the row that it feeds.
type feed struct {
	number  uint32
	overage bool
	old     bool       // see recordOldCells
	key     ledger.Row // that it feeds, without the slot

	rowed, rowedDenied int64 // of its counts, those booked
}

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

// NewJournal returns a journal of a life that begins.
func NewJournal(disk Durable) *Journal {
	return &Journal{disk: disk, feeds: make(map[*cell]*feed)}
}

// Fault returns why nothing is recorded any more; nil while all is.
func (j *Journal) Fault() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fault
}

// Without returns how many buckets found no room: a crash takes what they admitted since the last report.
func (j *Journal) Without() int64 {
	if j == nil {
		return 0
	}
	return j.without.Load()
}

func (j *Journal) appendLocked(record []byte) {
	if j.fault == nil {
		j.fault = j.disk.Append(record)
	}
}

// mount returns a cell that outlives the process for a new entry, where it feeds the ledger; nil for none. The
// registry's mutex is held.
func (j *Journal) mount(e *Entry) *cell {
	if j == nil {
		return nil
	}
	key, ok := e.row(0)
	if !ok {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fault != nil {
		return nil
	}
	number, at, err := j.disk.Cell()
	if err != nil {
		j.missed(e)
		return nil
	}
	p := &feed{number: number, key: key, overage: e.Overage()}
	if j.appendLocked(p.append([]byte{recordCells})); j.fault != nil {
		return nil
	}
	c := (*cell)(at)
	j.feeds[c] = p
	runtime.AddCleanup(e, j.release, c)
	return c
}

// missed counts a bucket that feeds the ledger and has no cell, once.
func (j *Journal) missed(e *Entry) {
	if !e.has(missed) {
		e.marks.set(missed, true)
		j.without.Add(1)
	}
}

// release takes back the cell of an entry that nobody can reach any more. All of its usage was booked when
// it was dropped. That the cell feeds nothing is recorded before it is free: after a loss of power what its
// next user counted in it may be on the disk, and the record that it is theirs may not.
func (j *Journal) release(c *cell) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flushLocked()
	number := j.feeds[c].number
	j.appendLocked(binary.AppendVarint([]byte{recordGone}, int64(number)))
	j.disk.Free(number)
	delete(j.feeds, c)
}

// Follow records what rows the buckets feed now, where the policy changed that. All usage up to
// the change was collected before. Buckets that feed the ledger from now on and have no cell go on without, and are
// counted: those that use one cannot be given another. The owner's.
func (j *Journal) Follow(r *Registry) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	record := []byte{recordCells}
	r.Each(func(e *Entry) {
		key, ok := e.row(0)
		p := j.feeds[e.mapped()]
		if p == nil {
			if ok {
				j.missed(e)
			}
			return
		}
		if !ok {
			key = p.key
			key.Meter = "" // what it admits from now on is of no interest
		}
		if key == p.key {
			return
		}
		p.key = key
		p.rowed, p.rowedDenied = e.rows()
		if record = p.append(record); len(record) >= maxRecord {
			j.appendLocked(record)
			record = record[:1]
		}
	})
	if len(record) > 1 {
		j.appendLocked(record)
	}
}

// Slot records under which slot usage is booked from now on, Unix seconds. The owner's.
func (j *Journal) Slot(slot int64) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.slot != slot {
		j.slot = slot
		j.appendLocked(binary.AppendVarint([]byte{recordSlot}, slot))
	}
}

// booked notes what was booked of a bucket under a slot, to be recorded by Flush.
func (j *Journal) booked(at *cell, slot int64, c counts, rowed, rowedDenied int64) {
	if j == nil || at == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.bookedLocked(j.feeds[at], slot, c, rowed, rowedDenied)
}

func (j *Journal) bookedLocked(p *feed, slot int64, c counts, rowed, rowedDenied int64) {
	p.rowed, p.rowedDenied = rowed, rowedDenied
	if len(j.batch) == 0 {
		j.batch = append(j.batch, recordBooked)
	}
	j.batch = binary.AppendVarint(j.batch, slot)
	for _, n := range [...]int64{int64(p.number), c.admitted, c.denied, rowed, rowedDenied} {
		j.batch = binary.AppendVarint(j.batch, n)
	}
	if len(j.batch) >= maxRecord {
		j.flushLocked()
	}
}

// Flush records what was booked since the last. The owner's.
func (j *Journal) Flush() {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flushLocked()
}

func (j *Journal) flushLocked() {
	if len(j.batch) > 0 {
		j.appendLocked(j.batch)
		j.batch = j.batch[:0]
	}
}

// frozen records reports of all that was booked.
func (j *Journal) frozen(reports []ledger.Report, turning bool) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flushLocked()
	record := []byte{recordFrozen, 0}
	if turning {
		record[1] = 1
	}
	for i := range reports {
		record = appendReport(record, &reports[i])
	}
	j.appendLocked(record)
}

// received records what was said of the first reports that wait.
func (j *Journal) received(receipts []ledger.Receipt, next int64) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	record := binary.AppendVarint([]byte{recordReceived}, next)
	for i := range receipts {
		record = binary.AppendVarint(record, int64(receipts[i].Status))
		record = binary.AppendVarint(record, receipts[i].NextSeq)
	}
	j.appendLocked(record)
}

// rotateAt is the size of a log from which it is made anew: some minutes of a busy agent.
const rotateAt = 64 << 20

// Trim begins to make a log that has grown anew, out of what is still of interest, and returns what brings that to its
// end: it waits for the disk, and holds up nobody who does not wait for it. It is nil where nothing is to be done. Trim does
// so only while all usage that was booked is in reports: right after a Freeze. The owner's.
func (j *Journal) Trim(o *Outbox) (put func() error, err error) {
	if j == nil || o.Usage.Rows() > 0 {
		return nil, nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if size := j.disk.Size(); j.fault != nil || j.anew || size < max(rotateAt, j.least) {
		return nil, nil
	}
	return j.rotateLocked(o)
}

func (j *Journal) rotateLocked(o *Outbox) (put func() error, err error) {
	j.flushLocked()
	replace, err := j.disk.Rotate(func(add func([]byte) error) error {
		for _, p := range j.feeds {
			if err := add(p.append([]byte{recordCells})); err != nil {
				return err
			}
		}
		if err := add(binary.AppendVarint([]byte{recordSlot}, j.slot)); err != nil {
			return err
		}
		if o.origin != (ledger.Origin{}) {
			record := binary.AppendVarint([]byte{recordOrigin}, o.origin.Epoch)
			if err := add(binary.AppendVarint(record, o.origin.Total)); err != nil {
				return err
			}
		}
		return add(o.append([]byte{recordOutbox}))
	})
	j.least = 2 * j.disk.Size() // a disk that refuses is not asked at each turn
	if err != nil {
		return nil, err
	}
	j.anew = true
	return func() error {
		err := replace()
		j.mu.Lock()
		defer j.mu.Unlock()
		j.anew, j.least = false, 2*j.disk.Size() // of many buckets it is long
		return err
	}, nil
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
	for _, n := range [...]int64{int64(p.number), overage, p.key.Version, p.rowed, p.rowedDenied} {
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

// ErrRecord means that a record is none that a journal wrote.
var ErrRecord = errors.New("agent: no record of a journal")

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
	p.rowed, p.rowedDenied = d.int(), d.int()
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
			r.rest(p, (*cell)(at))
		}
	}
	if r.counted {
		o.Freeze(o.through, true) // a life that counted nothing ends as well: the ledger waits for its holders
	}
	o.FreezeRest()
	return o, o.journal.fault
}

// rest books what a cell has beyond what was booked. After a loss of power it may be behind that.
func (r *Recovery) rest(p *feed, c *cell) {
	if p.old {
		c = c.reordered()
	}
	own, denied := max(c.takenOwn(), p.rowed), max(c.refused.Load()-c.excused.Load(), p.rowedDenied)
	left := counts{denied: denied - p.rowedDenied}
	if p.key.Meter != "" {
		left.admitted = own - p.rowed
	}
	if left == (counts{}) {
		return
	}
	r.book(p, r.slot, left)
	r.outbox.journal.bookedLocked(p, r.slot, left, own, denied)
}

// reordered is a copy of a cell that has what was refused second, where now what came back is.
func (c *cell) reordered() *cell {
	n := new(cell)
	n.tokens.Store(c.tokens.Load())
	n.refused.Store(c.back.Load())
	n.back.Store(c.pending.Load())
	n.pending.Store(c.refused.Load())
	n.put[0].Store(c.put[0].Load())
	n.put[1].Store(c.put[1].Load())
	n.inherited.Store(c.inherited.Load())
	n.excused.Store(c.excused.Load())
	return n
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
	p.key.Version, p.rowed, p.rowedDenied = d.int(), d.int(), d.int()
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
