package usage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/bucket"
)

// disk is a journal's files in memory, as a crash would leave them: stop is called before
// and after each change.
type disk struct {
	records [][]byte
	next    [][]byte // that are to take their place; nil while none are
	cells   []*bucket.Cell
	stop    func(where string)
	full    bool
	sealed  bool // records are under a secret
	room    int  // cells; 64 when 0

	synced struct { // that a loss of power cannot take
		records int
		cells   []*bucket.Cell
	}
}

// sync brings all to where a loss of power leaves it.
func (d *disk) sync() { d.synced.records, d.synced.cells = len(d.records), d.copy().cells }

// lose is what a loss of power leaves: of the records since the last sync the first few, and each cell
// as it was then or as it is.
func (d *disk) lose(rng *rand.Rand) *disk {
	c := d.copy()
	c.records = c.records[:d.synced.records+rng.IntN(len(d.records)-d.synced.records+1)]
	for i := range c.cells {
		switch {
		case rng.IntN(2) == 0:
		case i < len(d.synced.cells):
			c.cells[i] = (&disk{cells: d.synced.cells[i : i+1]}).copy().cells[0]
		default:
			c.cells[i] = new(bucket.Cell)
		}
	}
	return c
}

func (d *disk) Append(record []byte) error {
	if d.full {
		return errors.New("disk full")
	}
	d.stop("before a record")
	d.records = append(d.records, slices.Clone(record))
	if d.next != nil {
		d.next = append(d.next, slices.Clone(record))
	}
	d.stop("after a record of kind " + string(record[:1]))
	return nil
}

func (d *disk) Cell() (uint32, unsafe.Pointer, error) {
	if len(d.cells) == max(256, d.room) {
		return 0, nil, errors.New("no room")
	}
	d.cells = append(d.cells, new(bucket.Cell))
	d.stop("after a cell was found")
	return uint32(len(d.cells) - 1), unsafe.Pointer(d.cells[len(d.cells)-1]), nil
}

func (d *disk) Free(uint32) {}

func (d *disk) Size() (n int64) {
	for _, r := range d.records {
		n += int64(len(r))
	}
	return n
}

func (d *disk) Rotate(write func(func([]byte) error) error) (put func() error, err error) {
	d.stop("before the log is made anew")
	d.next = [][]byte{}
	err = write(func(r []byte) error {
		d.next = append(d.next, slices.Clone(r))
		return nil
	})
	d.stop("while the log is made anew")
	return func() error {
		d.records, d.next = d.next, nil
		d.sync()
		d.stop("after the log was made anew")
		return nil
	}, err
}

func (d *disk) At(number uint32) unsafe.Pointer {
	if int(number) >= len(d.cells) {
		return nil
	}
	return unsafe.Pointer(d.cells[number])
}

// copy is the files as they are.
func (d *disk) copy() *disk {
	c := &disk{records: slices.Clone(d.records), sealed: d.sealed, stop: func(string) {}}
	for _, from := range d.cells {
		to := new(bucket.Cell)
		for i := range counters(from) {
			counters(to)[i].Store(counters(from)[i].Load())
		}
		c.cells = append(c.cells, to)
	}
	return c
}

func (d *disk) recover(agent string, epoch int64) (*Outbox, error) {
	r := NewRecovery(agent, epoch)
	r.Sealed = d.sealed
	for i, record := range d.records {
		if err := r.Record(record); err != nil {
			return nil, fmt.Errorf("record %d: %w", i, err)
		}
	}
	return r.Finish(d)
}

// oneLine checks what recovering finds: one line, of that many units.
func (d *disk) oneLine(t *testing.T, admitted, denied int64) {
	t.Helper()
	back, err := d.recover("gw", 7)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := back.Lines()
	if err != nil || len(lines) != 1 || lines[0].Admitted != admitted || lines[0].Denied != denied {
		t.Errorf("%+v: %v; want %d units admitted and %d denied", lines, err, admitted, denied)
	}
}
