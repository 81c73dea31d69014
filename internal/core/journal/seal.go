package journal

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
)

var (
	// ErrSeal means that a record is not what the secret's holder wrote in that place. It was changed, moved,
	// copied from another log, or written under another secret.
	ErrSeal = errors.New("journal: the seal does not verify: it was written under another secret, or changed since")
	// ErrSealed means that a log was written under a secret, and none is given.
	ErrSealed = errors.New("journal: it was written under a secret; give that secret")
	// ErrUnsealed means that a log was written without a secret, and one is given: anybody may have written it.
	ErrUnsealed = errors.New("journal: it was written without a secret, so that anybody may have written it. " +
		"If this directory was under a secret before, somebody put it there: move it aside, with its cells. " +
		"Only otherwise settle it, by a start or quota-agent recover without the secret")
)

// MinSecret is how many bytes a secret has at least, or it could be guessed.
const MinSecret = 16

// tagSize is the bytes of a record's seal.
const tagSize = sha256.Size

// seal is the chain of a log under a secret. The seal of a record is the HMAC-SHA256 of the seal before, the
// record's length and the record. The first record, the header, names the agent, the epoch and random bytes of
// that log alone. So no record can be changed, left out, moved or taken from another log. Two things stay
// possible: cutting off the last records, and putting back an earlier copy of the whole file.
//
// The nil seal seals nothing.
type seal struct {
	mac  hash.Hash
	last [tagSize]byte // the seal of the record before; zero before the first
}

// newSeal begins a log's chain; nil without a secret.
func newSeal(secret []byte) *seal {
	if secret == nil {
		return nil
	}
	return &seal{mac: hmac.New(sha256.New, secret)}
}

func (s *seal) size() int64 {
	if s == nil {
		return 0
	}
	return tagSize
}

// next returns the seal of the next record, good until the one after.
func (s *seal) next(body []byte) []byte {
	if s == nil {
		return nil
	}
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(body)))
	s.mac.Reset()
	s.mac.Write([]byte("quota journal\x00")) // the secret may serve something else as well
	s.mac.Write(s.last[:])
	s.mac.Write(n[:])
	s.mac.Write(body)
	return s.mac.Sum(s.last[:0])
}

// verifies reports whether that is the seal of the next record, and goes on if so.
func (s *seal) verifies(body, tag []byte) bool {
	if s == nil {
		return true
	}
	before := s.last
	if hmac.Equal(s.next(body), tag) {
		return true
	}
	s.last = before
	return false
}

// expects refuses the header of a log that has seals where there is no secret, or the other way round.
func (s *seal) expects(header []byte) error {
	var h Header
	if json.Unmarshal(header, &h) != nil {
		return nil //nolint:nilerr // whoever reads it says so
	}
	switch {
	case s == nil && h.Format == sealedFormat:
		return ErrSealed
	case s != nil && h.Format == plainFormat:
		return ErrUnsealed
	}
	return nil
}

// Sealed reports whether records are under a secret. Cells never are.
func (h *Header) Sealed() bool { return h.Format == sealedFormat }

// stamp makes a header that of a new log.
func (d *Dir) stamp(h Header) Header {
	h.Format, h.Salt = plainFormat, ""
	if d.secret != nil {
		h.Format, h.Salt = sealedFormat, rand.Text()
	}
	return h
}

// mark begins the first cell of a life that was given up. Under a secret only its holder can write it, or one byte
// would take all that the log has. It names the life, not the log, which may be made anew under the same cells. A kill
// while it is written leaves no mark. That does no harm: nobody has been told yet that the life is void.
func (d *Dir) mark(h *Header) []byte {
	if d.secret == nil {
		return []byte{1}
	}
	mac := hmac.New(sha256.New, d.secret)
	fmt.Fprintf(mac, "quota journal given up\x00%d %s", h.Epoch, h.Agent)
	return mac.Sum(nil)
}

// givenUp is ErrVoid where the first page begins with the mark. Without a secret any byte is one. Under a secret marked
// says that there is something else, which is not believed.
func (d *Dir) givenUp(h *Header, page []byte) (marked bool, err error) {
	want := d.mark(h)
	switch {
	case page[0] != 0 && d.secret == nil, hmac.Equal(page[:len(want)], want):
		return false, ErrVoid
	}
	return slices.ContainsFunc(page[:CellSize], func(b byte) bool { return b != 0 }), nil
}

// Refused is what of a log is not believed, and where it is kept.
type Refused struct {
	File  string // empty where all is believed
	Bytes int64
	Why   error
}

// refuse keeps aside what is behind the last record that verifies in a sealed log, before it is cut off. It
// keeps nothing if there are only the zeros that a file is backed by.
func (l *Life) refuse(why error) (Refused, error) {
	info, err := l.file.Stat()
	if err != nil {
		return Refused{}, err
	}
	behind := io.NewSectionReader(l.file, l.size, info.Size()-l.size)
	n, err := lastWritten(behind)
	if err != nil || n == 0 {
		return Refused{}, err
	}
	if why == nil {
		why = fmt.Errorf("%w: torn, or changed, at byte %d", ErrSeal, l.size)
	}
	var f *os.File
	for i := 0; f == nil; i++ {
		name := fmt.Sprintf("%s.%d.refused", l.dir.name(l.Epoch), i)
		if f, err = os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil && !os.IsExist(err) {
			return Refused{}, err
		}
	}
	_, err = io.Copy(f, io.NewSectionReader(l.file, l.size, n))
	return Refused{f.Name(), n, why}, errors.Join(err, f.Sync(), f.Close(), l.dir.sync())
}

// lastWritten is how many bytes there are up to the last that is not zero.
func lastWritten(r io.Reader) (n int64, err error) {
	buf := make([]byte, 1<<16)
	for at := int64(0); ; {
		got, err := r.Read(buf)
		for i, b := range buf[:got] {
			if b != 0 {
				n = at + int64(i) + 1
			}
		}
		at += int64(got)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
