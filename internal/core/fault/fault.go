// Package fault holds the errors of administration that cross the wire: what is
// wrong with a document, and why a change was refused. Standard library only, so
// that a client can name them without reading policies itself.
package fault

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNotFound means that there is no such version, tenant or key.
	ErrNotFound = errors.New("not found")
	// ErrExists means that the id is taken already.
	ErrExists = errors.New("already exists")
	// ErrConflict means that another version came into force than the one a change was based on.
	ErrConflict = errors.New("another version is in force")
	// ErrInvalid means that a request or a change breaks a bound, or names what does
	// not exist; nothing was changed.
	ErrInvalid = errors.New("invalid")
	// ErrUnavailable means that the engine behind could not answer now: try again.
	ErrUnavailable = errors.New("unavailable")
	// ErrBusy means that as many calls of this kind go on as there may be at once.
	ErrBusy = errors.New("busy")
	// ErrUnauthenticated means that a call came without a key that is good.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrDenied means that the caller's key may not do this.
	ErrDenied = errors.New("not allowed")
)

// Fault is one thing wrong with a document.
type Fault struct {
	File    string
	Line    int // from 1
	Message string
}

// String writes the fault as compilers do: file:line: message.
func (f Fault) String() string {
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// Faults is everything wrong with a document, by line. It is the error of Parse.
type Faults []Fault

// Error returns one fault per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return strings.Join(lines, "\n")
}
