// Package switchfile reads the file by which an operator overrides every decision without a
// network: of one gateway, or of one server's agents. Type Says is what a file
// can say, and how that goes with the switches that were set elsewhere.
package switchfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// maxSize is the size of a switch file, in bytes: room for all tenants that it may deny.
const maxSize = 256 << 10

// Says is what a switch file says; the zero value for nothing. Its mode, if it names one,
// replaces the one that was set, and whom it denies is denied besides those that were set. So a file
// can end another's mode (mode: normal), and nobody else's denial.
type Says struct {
	Mode   limit.Mode
	Moded  bool     // the file names a mode
	Denied []string // in order
}

// Anything reports whether the file overrides anything.
func (s Says) Anything() bool { return s.Moded || len(s.Denied) > 0 }

// Equal reports whether two files say the same.
func (s Says) Equal(o Says) bool {
	return s.Mode == o.Mode && s.Moded == o.Moded && slices.Equal(s.Denied, o.Denied)
}

// Over returns what holds where sw was set: the file's first where the tenants of both
// are more than limit.MaxDenied.
func (s Says) Over(sw limit.Switches) limit.Switches {
	if s.Moded {
		sw.Mode = s.Mode
	}
	if len(s.Denied) > 0 {
		all := slices.Clone(s.Denied)
		for _, id := range sw.Denied {
			if _, there := slices.BinarySearch(s.Denied, id); !there && len(all) < limit.MaxDenied {
				all = append(all, id)
			}
		}
		slices.Sort(all)
		sw.Denied = all
	}
	return sw
}

// Read reads the file once. One that is not there says nothing.
func Read(path string) (Says, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return Says{}, nil
	}
	if err != nil {
		return Says{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return Says{}, err
	}
	if len(data) > maxSize {
		return Says{}, fmt.Errorf("%s: more than %d bytes", path, maxSize)
	}
	s, err := Parse(data)
	if err != nil {
		return Says{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Follower notices what changes in a file. It is not for concurrent use.
type Follower struct {
	path  string
	said  Says   // in force
	fault string // of the file as it is; empty for none

	// As last read. Writing a file empties it first: what it says counts once it was read twice.
	last      Says
	lastFault string
}

// Follow returns a follower of a file that said what it says when it was read before.
func Follow(path string, said Says) *Follower { return &Follower{path: path, said: said, last: said} }

// Look reads the file and reports whether it says, or has a fault, other than when
// Look last reported; err is the fault. With a fault, what it said before stays; it is called a few times a second.
func (f *Follower) Look() (says Says, changed bool, err error) {
	says, err = Read(f.path)
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	settled := fault == f.lastFault && says.Equal(f.last)
	f.last, f.lastFault = says, fault
	if !settled || fault == f.fault && (err != nil || says.Equal(f.said)) {
		return f.said, false, err
	}
	f.fault = fault
	if err == nil {
		f.said = says
	}
	return f.said, true, err
}
