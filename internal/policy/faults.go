package policy

import (
	"fmt"
	"sort"

	"github.com/f4ee788f/quota/internal/core/fault"
)

// MaxFaults is how many faults are reported at most; a document with more is not
// read by anyone to the end.
const MaxFaults = 100

// Fault is one thing wrong with a document.
type Fault = fault.Fault

// Faults is everything wrong with a document, by line: the error of Parse.
type Faults = fault.Faults

// faults collects what is wrong while a document is read.
type faults struct {
	file     string
	list     Faults
	warnings Faults // of what is allowed and cannot be meant; at most MaxFaults
}

func (f *faults) warn(line int, format string, args ...any) {
	if len(f.warnings) < MaxFaults {
		f.warnings = append(f.warnings, Fault{File: f.file, Line: line, Message: fmt.Sprintf(format, args...)})
	}
}

func (f *faults) add(line int, format string, args ...any) {
	if line < 1 {
		line = 1
	}
	f.list = append(f.list, Fault{File: f.file, Line: line, Message: fmt.Sprintf(format, args...)})
}

// err returns the faults in the document's order, without repeats, or nil.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	sort.SliceStable(f.list, func(i, j int) bool { return f.list[i].Line < f.list[j].Line })
	out := f.list[:1]
	for _, next := range f.list[1:] {
		if next != out[len(out)-1] {
			out = append(out, next)
		}
	}
	return bounded(out, "faults")
}

// BoundedFaults keeps a list of warnings short enough to send and to read.
func BoundedFaults(warnings Faults) Faults { return bounded(warnings, "warnings") }

func bounded(all Faults, of string) Faults {
	if len(all) <= MaxFaults {
		return all
	}
	next := all[MaxFaults]
	return append(all[:MaxFaults:MaxFaults], Fault{File: next.File, Line: next.Line, Message: fmt.Sprintf("and %d more %s", len(all)-MaxFaults, of)})
}
