package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Trail is a gateway's own count as a file that a kill -9 cannot shorten. Each request is written down before it is
// asked, and its outcome before the caller is answered. Every line is one write(2) to a file opened for appending. So
// it is whole or absent, and lines of several goroutines do not mix. If the process dies no line is lost; if the
// operating system dies, lines may be.
//
//	? TENANT           a request is asked.
//	+ TENANT AT TOOK   it was admitted, one unit: when that was known, and microseconds since it was asked.
//	- TENANT           it was denied, or never reached anybody.
//	! AT TOOK          the gateway was held up: when it went on, and for how many microseconds it had not run.
//
// A request without an outcome was in flight at the end, or its answer was lost.
type Trail struct {
	file *os.File
}

// OpenTrail makes a new trail, or goes on with one.
func OpenTrail(name string) (*Trail, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return &Trail{file: f}, nil
}

// Asked notes a request before it is asked, and returns when that was, for Admitted.
func (t *Trail) Asked(tenant string) (at int64, err error) {
	return trueMicros(), t.line("? " + tenant + "\n")
}

// Denied notes that nothing was admitted.
func (t *Trail) Denied(tenant string) error { return t.line("- " + tenant + "\n") }

// Admitted notes a unit of a request asked at that time.
func (t *Trail) Admitted(tenant string, asked int64) error {
	now := trueMicros()
	return t.line("+ " + tenant + " " + strconv.FormatInt(now, 10) + " " + strconv.FormatInt(now-asked, 10) + "\n")
}

// pulse is how often a gateway looks whether it runs, and heldUp the shortest pause that it notes.
const (
	pulse  = time.Millisecond
	heldUp = 5 * time.Millisecond
)

// Watch notes when the gateway is held up, until ctx ends. On one processor (GOMAXPROCS=1) that is whenever any of its
// goroutines is.
func (t *Trail) Watch(ctx context.Context) error {
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	last := trueMicros()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := trueMicros()
		if paused := now - last; paused >= heldUp.Microseconds() {
			if err := t.line("! " + strconv.FormatInt(now, 10) + " " + strconv.FormatInt(paused, 10) + "\n"); err != nil {
				return err
			}
		}
		last = now
	}
}

func (t *Trail) line(s string) error {
	_, err := t.file.WriteString(s)
	return err
}

// Close closes the file. What was written is there whether or not it is called.
func (t *Trail) Close() error { return t.file.Close() }

// trueMicros is the machine's time. It does not go through package time, whose clock
// a test may have set for this process.
func trueMicros() int64 {
	var tv syscall.Timeval
	if err := syscall.Gettimeofday(&tv); err != nil {
		return time.Now().UnixMicro()
	}
	return tv.Sec*1e6 + tv.Usec
}

// Unit is an admitted unit, between two times in Unix microseconds.
type Unit struct {
	Asked int64
	Known int64
}

// Counts is what trails say.
type Counts struct {
	Admitted map[string][]Unit // by tenant
	Open     map[string]int64  // requests without an outcome
	Denied   map[string]int64
	Pauses   []Pause // in which the gateway did not run
}

// Pause is between two times in Unix microseconds.
type Pause struct{ From, To int64 }

// NewCounts returns empty counts.
func NewCounts() *Counts {
	return &Counts{Admitted: make(map[string][]Unit), Open: make(map[string]int64), Denied: make(map[string]int64)}
}

// Add adds another trail's counts.
func (c *Counts) Add(o *Counts) {
	for t, at := range o.Admitted {
		c.Admitted[t] = append(c.Admitted[t], at...)
	}
	for t, n := range o.Open {
		c.Open[t] += n
	}
	for t, n := range o.Denied {
		c.Denied[t] += n
	}
}

// Before counts a tenant's units known to be admitted before a time in Unix microseconds.
func (c *Counts) Before(tenant string, micros int64) (n int64) {
	for _, u := range c.Admitted[tenant] {
		if u.Known < micros {
			n++
		}
	}
	return n
}

// Narrow takes units for admitted at most late before that was known, while the gateway ran. Only one trail's counts can
// be narrowed.
func (c *Counts) Narrow(late time.Duration) {
	for _, units := range c.Admitted {
		for i, u := range units {
			from := u.Known - late.Microseconds()
			for _, p := range slices.Backward(c.Pauses) {
				if p.From < u.Known && p.To > from {
					from -= min(p.To, u.Known) - p.From
				}
			}
			units[i].Asked = max(u.Asked, from)
		}
	}
}

// ReadTrail reads a trail, even a running gateway's. A trail that was not begun yet is empty. Errors wrap ErrRecord.
func ReadTrail(name string) (*Counts, error) {
	c := NewCounts()
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	for line := range strings.Lines(string(b[:bytes.LastIndexByte(b, '\n')+1])) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && f[0] == "?":
			c.Open[f[1]]++
		case len(f) == 2 && f[0] == "-":
			c.Open[f[1]]--
			c.Denied[f[1]]++
		case len(f) == 4 && f[0] == "+":
			at, err := strconv.ParseInt(f[2], 10, 64)
			took, bad := strconv.ParseInt(f[3], 10, 64)
			if errors.Join(err, bad) != nil {
				return nil, fmt.Errorf("%w: %s: %q", ErrRecord, name, line)
			}
			c.Open[f[1]]--
			c.Admitted[f[1]] = append(c.Admitted[f[1]], Unit{Asked: at - took, Known: at})
		case len(f) == 3 && f[0] == "!":
			at, err := strconv.ParseInt(f[1], 10, 64)
			took, bad := strconv.ParseInt(f[2], 10, 64)
			if errors.Join(err, bad) != nil {
				return nil, fmt.Errorf("%w: %s: %q", ErrRecord, name, line)
			}
			c.Pauses = append(c.Pauses, Pause{at - took, at})
		default:
			return nil, fmt.Errorf("%w: %s: %q", ErrRecord, name, line)
		}
	}
	return c, nil
}
