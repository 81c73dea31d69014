// Package export writes a breakdown of usage as a file: CSV, JSON lines or Parquet. It holds a bounded number of rows,
// whatever the file's length, and the same rows give the same bytes. No file is whole before Close.
package export

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/sheet"
)

// Format is what kind of file is written.
type Format uint8

const (
	CSV     Format = iota
	JSONL          // a JSON object a line
	Parquet        // a column of each name, times in milliseconds
)

// Rows writes a file's rows. Close ends the file, and leaves the writer below open.
type Rows interface {
	Write(r *ledger.BreakdownRow) error
	Close() error
}

// New writes rows of the breakdown q to w.
func New(w io.Writer, f Format, q *ledger.BreakdownQuery) Rows {
	c := columns{q: q, zone: q.Zone}
	if c.zone == nil || q.Every < ledger.EveryDay {
		c.zone = time.UTC
	}
	switch f {
	case JSONL:
		return newLines(w, c)
	case Parquet:
		return newParquet(w, c)
	default:
		return &table{columns: c, w: csv.NewWriter(w)}
	}
}

// columns are the same in every format: start, the dimensions, the counts.
type columns struct {
	q    *ledger.BreakdownQuery
	zone *time.Location
	at   int64 // of the last row, and
	said string
}

func (c *columns) names() (all []string) {
	if c.q.Every != ledger.EveryRange {
		all = append(all, "start")
	}
	all = append(append(all, c.q.By...), "admitted", "overage", "denied")
	if c.q.Peak {
		all = append(all, "peak")
	}
	return all
}

func (c *columns) counts(r *ledger.BreakdownRow) []int64 {
	all := []int64{r.Admitted, r.Overage, r.Denied}
	if c.q.Peak {
		all = append(all, r.Peak)
	}
	return all
}

// start is a row's time as text. It is formatted once for many rows with the same time.
func (c *columns) start(r *ledger.BreakdownRow) string {
	if c.said == "" || r.Start != c.at {
		c.at, c.said = r.Start, time.Unix(r.Start, 0).In(c.zone).Format(time.RFC3339)
	}
	return c.said
}

// Name is a row's name for people, by a dimension. For all attributes it is pairs with commas. A comma or a backslash
// within a pair gets a backslash before it, so that no two rows share a name.
func Name(by, name string) string {
	if by != ledger.DimAttributes {
		return name
	}
	return pairs.Replace(name)
}

var pairs = strings.NewReplacer(ledger.AttributeSep, ",", ",", `\,`, `\`, `\\`)

// table is CSV: a header, then a line for each row. Names are as sheet.Text writes them.
type table struct {
	columns
	w     *csv.Writer
	begun bool
	cells []string
}

func (s *table) header() {
	if !s.begun {
		_ = s.w.Write(s.names()) // Error tells
		s.begun = true
	}
}

// Write adds a line.
func (s *table) Write(r *ledger.BreakdownRow) error {
	s.header()
	s.cells = s.cells[:0]
	if s.q.Every != ledger.EveryRange {
		s.cells = append(s.cells, s.start(r))
	}
	for i, n := range r.Names {
		s.cells = append(s.cells, sheet.Text(Name(s.q.By[i], n)))
	}
	for _, n := range s.counts(r) {
		s.cells = append(s.cells, strconv.FormatInt(n, 10))
	}
	return s.w.Write(s.cells)
}

// Close writes what is left.
func (s *table) Close() error {
	s.header()
	s.w.Flush()
	return s.w.Error()
}

// lines is JSON lines: an object each, its fields in the order of the columns.
type lines struct {
	columns
	w    io.Writer
	keys [][]byte // what is before each value
	buf  []byte
}

func newLines(w io.Writer, c columns) *lines {
	l := &lines{columns: c, w: w}
	before := byte('{')
	for _, name := range c.names() {
		l.keys = append(l.keys, append(appendText([]byte{before}, name), ':'))
		before = ','
	}
	return l
}

// Write adds an object.
func (l *lines) Write(r *ledger.BreakdownRow) error {
	l.buf = l.buf[:0]
	keys := l.keys
	key := func() {
		l.buf = append(l.buf, keys[0]...)
		keys = keys[1:]
	}
	if l.q.Every != ledger.EveryRange {
		key()
		l.buf = appendText(l.buf, l.start(r))
	}
	for i, n := range r.Names {
		key()
		l.buf = appendText(l.buf, Name(l.q.By[i], n))
	}
	for _, n := range l.counts(r) {
		key()
		l.buf = strconv.AppendInt(l.buf, n, 10)
	}
	l.buf = append(l.buf, '}', '\n')
	_, err := l.w.Write(l.buf)
	return err
}

// Close has nothing left to write.
func (l *lines) Close() error { return nil }

// appendText adds a string as encoding/json writes it. Nearly all strings are plain, and need no check of each
// character.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			encoded, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string
			}
			return append(b, encoded...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
