package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

// BinLength is how finely a record tells when units were admitted.
const BinLength = 100 * time.Millisecond

// ErrRecord means that a record is cut short or not one at all.
var ErrRecord = errors.New("gateway: unreadable record")

// Bin is a tenant's share of one BinLength.
type Bin struct {
	At     int64 // the bin's start in BinLengths since the Unix epoch
	Tenant string
}

// Record is what one gateway, or several together, admitted and denied.
type Record struct {
	Admitted map[Bin]int64
	Denied   map[string]int64
}

// NewRecord returns an empty record.
func NewRecord() *Record {
	return &Record{Admitted: make(map[Bin]int64), Denied: make(map[string]int64)}
}

// At is the bin of a time.
func At(t time.Time) int64 { return t.UnixMilli() / BinLength.Milliseconds() }

// Add adds another record's counts to this one.
func (r *Record) Add(o *Record) {
	for b, n := range o.Admitted {
		r.Admitted[b] += n
	}
	for t, n := range o.Denied {
		r.Denied[t] += n
	}
}

// Totals are the units admitted by tenant.
func (r *Record) Totals() map[string]int64 {
	totals := make(map[string]int64)
	for b, n := range r.Admitted {
		totals[b.Tenant] += n
	}
	return totals
}

// Write writes the record as text: a line for each bin and tenant, and a last line
// without which it counts as cut short.
func (r *Record) Write(w io.Writer) error {
	bins := make([]Bin, 0, len(r.Admitted))
	for b := range r.Admitted {
		bins = append(bins, b)
	}
	sort.Slice(bins, func(i, j int) bool {
		return bins[i].At < bins[j].At || (bins[i].At == bins[j].At && bins[i].Tenant < bins[j].Tenant)
	})
	tenants := make([]string, 0, len(r.Denied))
	for t := range r.Denied {
		tenants = append(tenants, t)
	}
	sort.Strings(tenants)
	buf := bufio.NewWriter(w)
	for _, b := range bins {
		fmt.Fprintf(buf, "admitted %d %s %d\n", b.At, b.Tenant, r.Admitted[b])
	}
	for _, t := range tenants {
		fmt.Fprintf(buf, "denied %s %d\n", t, r.Denied[t])
	}
	fmt.Fprintf(buf, "end %d\n", len(bins)+len(tenants))
	return buf.Flush()
}

// writeTo writes the record to a file, if there is to be one.
func (r *Record) writeTo(name string) error {
	if name == "" {
		return nil
	}
	return r.WriteFile(name)
}

// WriteFile writes the record to a file.
func (r *Record) WriteFile(name string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.Write(f)
}

// Read reads what Write wrote. Errors wrap ErrRecord.
func Read(from io.Reader) (*Record, error) {
	r := NewRecord()
	lines, ended := 0, false
	s := bufio.NewScanner(from)
	for s.Scan() {
		f := strings.Fields(s.Text())
		if ended {
			return nil, fmt.Errorf("%w: a line after its end: %q", ErrRecord, s.Text())
		}
		switch {
		case len(f) == 4 && f[0] == "admitted":
			at, err1 := strconv.ParseInt(f[1], 10, 64)
			n, err2 := strconv.ParseInt(f[3], 10, 64)
			if err1 != nil || err2 != nil {
				return nil, fmt.Errorf("%w: %q", ErrRecord, s.Text())
			}
			r.Admitted[Bin{at, f[2]}] += n
		case len(f) == 3 && f[0] == "denied":
			n, err := strconv.ParseInt(f[2], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%w: %q", ErrRecord, s.Text())
			}
			r.Denied[f[1]] += n
		case len(f) == 2 && f[0] == "end" && f[1] == strconv.Itoa(lines):
			ended = true
		default:
			return nil, fmt.Errorf("%w: %q", ErrRecord, s.Text())
		}
		lines++
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if !ended {
		return nil, fmt.Errorf("%w: cut short after %d lines", ErrRecord, lines)
	}
	return r, nil
}

// ReadFile reads a record from a file.
func ReadFile(name string) (*Record, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	defer f.Close()
	r, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}
