package usage

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Durable is what a journal needs of the disk; internal/core/journal has it.
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
	feeds map[*bucket.Cell]*feed
	batch []byte // of what is booked and not recorded yet
	slot  int64
	fault error // why nothing is recorded any more
	least int64 // bytes that the log has at least before it is made anew
	anew  bool  // that is under way

	without atomic.Int64 // buckets that found no room
}

// NewJournal returns a journal of a life that begins.
func NewJournal(disk Durable) *Journal {
	return &Journal{disk: disk, feeds: make(map[*bucket.Cell]*feed)}
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

// Mount returns a cell that outlives the process for a new bucket that feeds a row of the ledger; nil where there is no room, or
// no journal. It writes, and so is called with no mutex held that a request waits for. Whoever makes a bucket with it has
// Release called once nobody can reach that any more.
func (j *Journal) Mount(row ledger.Row, overage bool) *bucket.Cell {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fault != nil {
		return nil
	}
	number, at, err := j.disk.Cell()
	if err != nil {
		return nil
	}
	p := &feed{number: number, key: row, overage: overage}
	if j.appendLocked(p.append([]byte{recordCells})); j.fault != nil {
		return nil
	}
	c := (*bucket.Cell)(at)
	j.feeds[c] = p
	return c
}

// Missed counts a bucket that feeds the ledger and has no cell.
func (j *Journal) Missed() { j.without.Add(1) }

// Release takes back the cell of a bucket that nobody can reach any more. All of its usage was booked when
// it was dropped. That the cell feeds nothing is recorded before it is free: after a loss of power what its
// next user counted in it may be on the disk, and the record that it is theirs may not.
func (j *Journal) Release(c *bucket.Cell) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flushLocked()
	number := j.feeds[c].number
	j.appendLocked(binary.AppendVarint([]byte{recordGone}, int64(number)))
	j.disk.Free(number)
	delete(j.feeds, c)
}

// Fed is a bucket and the row that it feeds.
type Fed struct {
	Cell   *bucket.Cell // nil for none
	Row    ledger.Row   // without the slot
	Feeds  bool         // what it admits and denies is of interest
	Booked func() bucket.Count
}

// Follow records what rows the buckets feed now, where the policy changed that. All usage up to
// the change was collected before. each calls follow for all of them, which is false for one without a cell. The owner's.
func (j *Journal) Follow(each func(follow func(Fed) bool)) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	record := []byte{recordCells}
	each(func(f Fed) bool {
		p := j.feeds[f.Cell]
		if p == nil {
			return false
		}
		if !f.Feeds {
			f.Row = p.key
			f.Row.Meter = "" // what it admits from now on is of no interest
		}
		if f.Row == p.key {
			return true
		}
		p.key, p.rowed = f.Row, f.Booked()
		if record = p.append(record); len(record) >= maxRecord {
			j.appendLocked(record)
			record = record[:1]
		}
		return true
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
func (j *Journal) booked(at *bucket.Cell, slot int64, c counts, upTo bucket.Count) {
	if j == nil || at == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.bookedLocked(j.feeds[at], slot, c, upTo)
}

func (j *Journal) bookedLocked(p *feed, slot int64, c counts, upTo bucket.Count) {
	p.rowed = upTo
	if len(j.batch) == 0 {
		j.batch = append(j.batch, recordBooked)
	}
	j.batch = binary.AppendVarint(j.batch, slot)
	for _, n := range [...]int64{int64(p.number), c.admitted, c.denied, upTo.Admitted, upTo.Denied} {
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
