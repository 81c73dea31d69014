package archive

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Summary says what a file holds.
type Summary struct {
	Rows   int64
	Bytes  int64    // of the file
	SHA256 string   // of the file, in hexadecimal
	lines  [32]byte // SHA-256 of what was packed
}

// Write makes the file: rows calls put for each line in its order. The file is written
// under another name, made durable, read back and compared with what was written, and
// only then gets its name. A file of that name that is of the same ledger and month is
// replaced; any other is an error. step is told of "written" and "renamed", and an error
// of its ends Write there.
func Write(dir string, h Header, step func(string) error, rows func(put func(line any) error) error) (Summary, error) {
	path := filepath.Join(dir, h.Name())
	if err := mayReplace(path, h); err != nil {
		return Summary{}, err
	}
	part := path + ".part"
	s, err := write(part, h, rows)
	if err != nil {
		return s, fmt.Errorf("write %s: %w", part, err)
	}
	if err := step("written"); err != nil {
		return s, err
	}
	again, err := Read(part, h, func(json.RawMessage) error { return nil })
	if err != nil {
		return s, fmt.Errorf("read back: %w", err)
	}
	if again.Rows != s.Rows || again.lines != s.lines {
		return s, fmt.Errorf("%s is not what was written to it: %d rows of %d", part, again.Rows, s.Rows)
	}
	if err := os.Rename(part, path); err != nil {
		return s, err
	}
	if err := syncDir(dir); err != nil {
		return s, err
	}
	return again, step("renamed")
}

func mayReplace(path string, h Header) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := newReader(f)
	if err == nil && r.header != h {
		err = errors.New("it is of another ledger or month")
	}
	if err != nil {
		return fmt.Errorf("%s is there, and is not this ledger's: %w; give another directory", path, err)
	}
	return nil
}

func write(part string, h Header, rows func(put func(line any) error) error) (s Summary, err error) {
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return s, err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	buffer := bufio.NewWriterSize(f, 1<<20)
	zip, lines := gzip.NewWriter(buffer), sha256.New()
	encoder := json.NewEncoder(io.MultiWriter(zip, lines))
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(h); err != nil {
		return s, err
	}
	if err := rows(func(line any) error { s.Rows++; return encoder.Encode(line) }); err != nil {
		return s, err
	}
	s.lines = [32]byte(lines.Sum(nil))
	return s, errors.Join(zip.Close(), buffer.Flush(), f.Sync())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// maxLine bounds a line, in bytes: a report's payload, and what is in quarantine of it,
// are below half of it.
const maxLine = 32 << 20

// Read calls do for each line of a file after its header, which must be the one given.
// The file is read to its end, so that the summary is of all of it.
func Read[L any](path string, want Header, do func(L) error) (s Summary, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	fault := func(err error) (Summary, error) { return s, fmt.Errorf("%s: %w", path, err) }
	r, err := newReader(f)
	if err != nil {
		return fault(err)
	}
	if r.header != want {
		return fault(fmt.Errorf("it says that it is %+v, and shall be %+v", r.header, want))
	}
	for r.lines.Scan() {
		var line L
		if err := json.Unmarshal(r.lines.Bytes(), &line); err != nil {
			if cut := r.lines.Err(); cut != nil {
				err = cut // it is the rest of a file that ends too early
			}
			return fault(fmt.Errorf("row %d: %w", s.Rows+1, err))
		}
		if err := do(line); err != nil {
			return fault(fmt.Errorf("row %d: %w", s.Rows+1, err))
		}
		s.Rows++
	}
	if err := r.lines.Err(); err != nil {
		return fault(err)
	}
	if _, err := io.Copy(io.Discard, r.raw); err != nil { // what is after the end of the gzip
		return fault(err)
	}
	s.Bytes, s.SHA256 = r.raw.n, hex.EncodeToString(r.raw.sum.Sum(nil))
	s.lines = [32]byte(r.sum.Sum(nil))
	return s, nil
}

// reader reads the header, and then lines.
type reader struct {
	header Header
	lines  *bufio.Scanner
	sum    hash.Hash // of the lines
	raw    *summed
}

func newReader(f io.Reader) (*reader, error) {
	r := &reader{raw: &summed{r: f, sum: sha256.New()}, sum: sha256.New()}
	zip, err := gzip.NewReader(bufio.NewReaderSize(r.raw, 1<<20))
	if err != nil {
		return nil, err
	}
	r.lines = bufio.NewScanner(io.TeeReader(zip, r.sum))
	r.lines.Buffer(make([]byte, 64<<10), maxLine)
	if !r.lines.Scan() {
		return nil, errors.Join(errors.New("there is no first line"), r.lines.Err())
	}
	if err := json.Unmarshal(r.lines.Bytes(), &r.header); err != nil {
		return nil, fmt.Errorf("first line: %w", err)
	}
	if r.header.Format != Format {
		return nil, fmt.Errorf("it is of format %d, and this reads %d", r.header.Format, Format)
	}
	return r, nil
}

// summed counts and sums what is read through it.
type summed struct {
	r   io.Reader
	n   int64
	sum hash.Hash
}

// Read is io.Reader's.
func (s *summed) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.n += int64(n)
	s.sum.Write(b[:n])
	return n, err
}
