package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// A log is records one after the other: length, checksum, body. The checksum goes on from the
// record before, so that what follows a torn one is not taken for its successor. Under a secret a seal follows
// each body (seal.go), and whatever does not verify is refused.
const frame = 8

// maxRecord bounds a record, against lengths that are none: a report's bytes, several times over. One that is longer
// is refused, for it would not be read again.
const maxRecord = 1 << 30

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// log appends to a file. Its methods are not safe for concurrent use.
type log struct {
	file *os.File
	size int64 // of the whole records
	room int64 // backed by blocks up to here
	sum  uint32
	buf  []byte
	seal *seal // nil without a secret
}

// grow is by how much the file is backed ahead, so that a full disk is met between records.
const grow = 1 << 20

// append adds a record. After an error nothing may be appended any more.
func (l *log) append(body []byte) error {
	if len(body) > maxRecord {
		return fmt.Errorf("journal: a record of %d bytes; at most %d", len(body), maxRecord)
	}
	need := l.size + frame + int64(len(body)) + l.seal.size()
	if need > l.room {
		room := need + grow
		if err := reserve(l.file, l.room, room-l.room); err != nil {
			return err
		}
		l.room = room
	}
	tag := l.seal.next(body)
	l.buf = binary.LittleEndian.AppendUint32(l.buf[:0], uint32(len(body)))
	sum := l.check(l.buf, body, tag)
	l.buf = binary.LittleEndian.AppendUint32(l.buf, sum)
	l.buf = append(append(l.buf, body...), tag...)
	if _, err := l.file.WriteAt(l.buf, l.size); err != nil {
		return err
	}
	l.size, l.sum = need, sum
	if cap(l.buf) > 1<<20 {
		l.buf = nil
	}
	return nil
}

// check is the checksum of the next record. It is of the seal as well, so that a seal that is half written is torn.
func (l *log) check(length, body, tag []byte) uint32 {
	return crc32.Update(crc32.Update(crc32.Update(l.sum, castagnoli, length), castagnoli, body), castagnoli, tag)
}

// read calls f for each whole record, and stops at the first that is torn. It stops with ErrSeal at the first
// whose seal is not what the secret makes of it and all before it. body is f's to keep.
func (l *log) read(f func(body []byte) error) error {
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	r := io.NewSectionReader(l.file, 0, info.Size())
	var head [frame]byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return torn(err)
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n == 0 || int64(n) > min(maxRecord, info.Size()-l.size-frame) {
			return nil
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil {
			return torn(err)
		}
		if l.size == 0 { // how long its seal is goes before whether it is whole
			if err := l.seal.expects(body); err != nil {
				return err
			}
		}
		tag := make([]byte, l.seal.size())
		if _, err := io.ReadFull(r, tag); err != nil {
			return torn(err)
		}
		sum := l.check(head[:4], body, tag)
		if sum != binary.LittleEndian.Uint32(head[4:]) {
			return nil
		}
		if !l.seal.verifies(body, tag) {
			return fmt.Errorf("%w: record at byte %d", ErrSeal, l.size)
		}
		if err := f(body); err != nil {
			return fmt.Errorf("record at byte %d: %w", l.size, err)
		}
		l.size, l.sum = l.size+frame+int64(n)+l.seal.size(), sum
	}
}

// torn makes the end of a file, wherever in a record it is, an end.
func torn(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
