package usage

import (
	"bytes"
	"runtime"
	"testing"
)

// A log of before what was refused came behind what came back says so, and its cells are read as they were written.
func TestCellsOfAnOldLog(t *testing.T) {
	d := &disk{stop: func(string) {}}
	j := NewJournal(d)
	j.Slot(300)
	e := bucketsOf(j).touch("u0", 1)
	for i, n := range []int64{0, 5, 2, 0, 9, 9, 0, 1} { // nothing is there, 5 refused, 2 back, 9 put in, 1 excused
		counters(d.cells[0])[i].Store(n)
	}
	for i, record := range d.records {
		if record[0] == recordCells { // and rows had no plan
			d.records[i] = append([]byte{recordOldCells}, bytes.TrimSuffix(record[1:], []byte("\x02p"))...)
		}
	}
	d.oneLine(t, 7, 4)
	runtime.KeepAlive(e)
}
