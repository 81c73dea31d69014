package journal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Kept is a log of the directory, or a part of one. Its life goes on, is to be settled, is settled, or was
// given up.
type Kept struct {
	Name string // of the file
	Header
}

// Kept returns the logs: those of earlier lives first, and a life's parts in their order. A log that is moved
// meanwhile may be missing, so a caller that has read them all asks again and compares. A faulty log keeps none
// of the others back.
func (d *Dir) Kept() (logs []Kept, err error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	type place struct{ epoch, part int64 }
	places := make(map[string]place)
	for _, e := range entries {
		life, ending, _ := strings.Cut(e.Name(), ".")
		epoch, err := strconv.ParseInt(life, 10, 64)
		if err != nil {
			continue
		}
		at := place{epoch, math.MaxInt64} // the last part has no number
		switch part, settled := strings.CutSuffix("."+ending, drained); {
		case !settled && "."+ending != voided && ending != "log":
			continue
		case settled && part != "":
			if at.part, err = strconv.ParseInt(part[1:], 10, 64); err != nil {
				continue
			}
		}
		places[e.Name()] = at
	}
	names := slices.SortedFunc(maps.Keys(places), func(a, b string) int {
		p, q := places[a], places[b]
		return cmp.Or(cmp.Compare(p.epoch, q.epoch), cmp.Compare(p.part, q.part))
	})
	var errs []error
	for _, name := range names {
		h, ok, err := d.header(places[name].epoch, strings.TrimPrefix(name, strconv.FormatInt(places[name].epoch, 10)))
		switch {
		case os.IsNotExist(err): // put elsewhere just now
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		case ok:
			logs = append(logs, Kept{Name: name, Header: h})
		}
	}
	return logs, errors.Join(errs...)
}

// Read calls f for each whole record of a log. The log may be written meanwhile.
func (d *Dir) Read(k Kept, f func(body []byte) error) error {
	file, err := os.Open(filepath.Join(d.path, k.Name))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	l, first := log{file: file, seal: newSeal(d.secret)}, true
	err = l.read(func(body []byte) error {
		if first { // the header
			first = false
			return nil
		}
		return f(body)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", k.Name, err)
	}
	return nil
}
