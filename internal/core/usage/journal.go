package usage

import (
	"encoding/binary"
	"errors"
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
	// Rotate makes a new log of the records that write adds, and those appended from then on. It takes the old one's
	// place once put has returned; if anything fails, the old one stays. put waits for the disk, as nothing else here
	// does. It is called once, while others go on.
	Rotate(write func(add func(record []byte) error) error) (put func() error, err error)
	// At returns the memory of a cell of an earlier life; nil where it had none of that number.
	At(number uint32) unsafe.Pointer
}

// Journal writes down what a crash of the agent must not take. Buckets that feed the ledger count in cells that
// outlive the process. Before a cell is first used a record says which row it feeds. Usage is recorded when it is
// booked, with the count up to which it is. Reports are recorded before they are sent, and the answers to them. So a
// recovery goes through the records again (Recovery), and adds what the cells have beyond what was booked. Under a
// secret somebody else may have written the cells. Then it believes the records alone: the rest is unsealed, and the
// ledger keeps it in quarantine. So
//
//	counted ≤ ledger + quarantine ≤ counted + in flight, and ledger ≤ counted
//
// The nil Journal records nothing.
type Journal struct {
	mu    sync.Mutex
	disk  Durable
	feeds map[*bucket.Cell]*feed
	// reserved are the reservations that a later life is to know.
	reserved map[ReservationID]*recorded
	batch    []byte // of what is booked and not recorded yet
	slot     int64
	fault    error // why nothing is recorded any more
	least    int64 // bytes that the log has at least before it is made anew
	anew     bool  // that is under way

	without atomic.Int64 // buckets that found no room
}

// NewJournal returns a journal of a life that begins.
func NewJournal(disk Durable) *Journal {
	return &Journal{disk: disk, feeds: make(map[*bucket.Cell]*feed), reserved: make(map[ReservationID]*recorded)}
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

// Mount returns a cell that outlives the process, for a new bucket that feeds a row of the ledger. It is nil where
// there is no room, or no journal. It writes, so no mutex may be held that a request waits for. The caller has Release
// called once nobody can reach the bucket any more.
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

// Release takes back the cell of a bucket that nobody can reach any more. All of its usage was booked when it was
// dropped. A record says that the cell feeds nothing before it is free. Otherwise, after a loss of power, the disk may
// have the counts of its next user and not the record that they are theirs.
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
	j.flushLocked() // seals there are of what was booked before
	cells := feeds{add: j.disk.Append}
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
		p.key, p.rowed, p.seen = f.Row, f.Booked(), 0
		if j.fault == nil {
			j.fault = cells.write(p)
		}
		return true
	})
	if j.fault == nil {
		j.fault = cells.end()
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
	j.noteLocked(slot, int64(p.number), c.admitted, c.denied, upTo.Admitted, upTo.Denied)
}

// noteLocked adds numbers to the record of what is booked.
func (j *Journal) noteLocked(numbers ...int64) {
	if len(j.batch) == 0 {
		j.batch = append(j.batch, recordBooked)
	}
	for _, n := range numbers {
		j.batch = binary.AppendVarint(j.batch, n)
	}
	if len(j.batch) >= maxRecord {
		j.flushLocked()
	}
}

// Counter is a bucket as Seal sees it: bucket.Bucket's Counts, with nothing of its own where it is not metered.
type Counter interface {
	Counts() (admitted, denied, own int64)
}

// Seal records what buckets have counted beyond what is booked. Under a secret, which covers records and not cells, a
// recovery bills no more than that. each calls seal for all buckets. Of one whose cell is as it was at the last seal
// the counts are not asked, which take its mutex.
//
// What was admitted is never too much. Of what was refused a soft limit may excuse units later, so that a seal between
// the two may tell of a denial too many.
//
// It is in the log because the log's chain already refuses what is torn, forged, moved or of the cell's earlier user. A
// MAC for each cell, in a file, would cost as much again as the look at the buckets (BenchmarkSeal), and ten times the
// bytes.
func (j *Journal) Seal(each func(seal func(*bucket.Cell, Counter))) {
	if j.Fault() != nil {
		return
	}
	each(func(at *bucket.Cell, of Counter) {
		mark := at.Mark() // first: what changes meanwhile is seen the next time
		if !j.changed(at, mark) {
			return
		}
		_, denied, own := of.Counts()
		j.mu.Lock()
		defer j.mu.Unlock()
		p := j.feeds[at]
		if p == nil {
			return
		}
		p.seen = mark
		c := bucket.Count{Admitted: own, Denied: denied}
		if p.key.Meter == "" {
			c.Admitted = 0
		}
		known := later(p.rowed, p.sealed)
		if c = later(c, known); c == known {
			return
		}
		p.sealed = c
		j.noteLocked(slotSealed, int64(p.number), c.Admitted-p.rowed.Admitted, c.Denied-p.rowed.Denied)
	})
	j.Flush()
}

// changed reports whether a cell is not as the last seal saw it.
func (j *Journal) changed(at *bucket.Cell, mark uint64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.feeds[at]
	return p != nil && p.seen != mark
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

// Trim begins to make a log that has grown anew, out of what still matters. It returns a function that ends that,
// which waits for the disk and holds up nobody else; nil where there is nothing to do. All usage booked has to be in
// reports: it is called right after a Freeze. The owner's.
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
		cells := feeds{add: add}
		for _, p := range j.feeds {
			if err := cells.write(p); err != nil {
				return err
			}
		}
		if err := errors.Join(cells.end(), j.writeReserved(add)); err != nil {
			return err
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
