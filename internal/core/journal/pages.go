package journal

import (
	"fmt"
	"os"
	"unsafe"
)

const (
	// CellSize is the bytes of a cell: a cache line.
	CellSize = 64
	// pageCells is the cells that are mapped at a time: a megabyte of them.
	pageCells = 16_384
	pageSize  = pageCells * CellSize
	// rest is how many cells that are free stay unused, the latest, so that one
	// is not another's at once.
	rest = 4096
)

// pages is the memory-mapped cells of a life, a fixed number in each file. They stay mapped until the process
// ends, for a goroutine may still hold a cell.
type pages struct {
	name  string // of the files, less their number
	maps  [][]byte
	next  uint32   // the first cell that was never used
	free  []uint32 // zero on the disk, in the order in which they became so
	freed []uint32 // zero, and on the disk with the next sync: a record of the next user must not be there first
}

// cell returns a cell's memory.
func (p *pages) cell(number uint32) unsafe.Pointer {
	return start(p.maps[number/pageCells][number%pageCells*CellSize:])
}

// take returns a zero cell that nobody uses.
func (p *pages) take() (number uint32, err error) {
	if len(p.free) > rest {
		number = p.free[0]
		p.free = p.free[1:]
		return number, nil
	}
	if p.next == uint32(len(p.maps))*pageCells {
		if err := p.more(); err != nil {
			return 0, err
		}
	}
	p.next++
	return p.next - 1, nil
}

// give takes a cell back.
func (p *pages) give(number uint32) {
	clear(p.maps[number/pageCells][number%pageCells*CellSize:][:CellSize])
	p.freed = append(p.freed, number)
}

// more maps another file.
func (p *pages) more() error {
	f, err := os.OpenFile(p.file(len(p.maps)), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	var b []byte
	if err = fill(f, pageSize); err == nil {
		b, err = mapShared(f, pageSize, true)
	}
	_ = f.Close() // it stays mapped
	if err != nil {
		_ = os.Remove(f.Name()) // what went wrong before is what counts
		return err
	}
	p.maps = append(p.maps, b)
	return nil
}

func (p *pages) file(i int) string { return fmt.Sprintf("%s.cells.%d", p.name, i) }

// open maps the files that there are: a whole number of pages each, or it is no journal's. Of them only the first is
// written, where the life is given up.
func (p *pages) open() error {
	for {
		first, access := len(p.maps) == 0, os.O_RDONLY
		if first {
			access = os.O_RDWR
		}
		f, err := os.OpenFile(p.file(len(p.maps)), access, 0)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil && info.Size() != pageSize {
			err = fmt.Errorf("%w: %s has %d bytes, not %d", ErrDamaged, f.Name(), info.Size(), pageSize)
		}
		var b []byte
		if err == nil {
			b, err = mapShared(f, pageSize, first)
		}
		_ = f.Close() // it stays mapped
		if err != nil {
			return err
		}
		p.maps = append(p.maps, b)
	}
}

// remove removes the files.
func (p *pages) remove() error {
	for i := 0; ; i++ {
		if err := os.Remove(p.file(i)); os.IsNotExist(err) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// flush brings all of it to the disk.
func flushAll(maps [][]byte) error {
	for _, b := range maps {
		if err := flush(b); err != nil {
			return err
		}
	}
	return nil
}
