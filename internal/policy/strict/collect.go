package strict

import (
	"fmt"
	"sort"

	"github.com/f4ee788f/quota/internal/core/fault"
)

// MostFaults is how many faults are reported at most; nobody reads more to the end.
const MostFaults = 100

// Collector collects faults while a document is read.
type Collector struct {
	File     string
	List     fault.Faults
	Warnings fault.Faults // of what is allowed and cannot be meant; at most mostFaults
}

// Warn notes text that is allowed but cannot be meant.
func (f *Collector) Warn(line int, format string, args ...any) {
	if len(f.Warnings) < MostFaults {
		f.Warnings = append(f.Warnings, fault.Fault{File: f.File, Line: line, Message: fmt.Sprintf(format, args...)})
	}
}

// Add notes a fault at a line.
func (f *Collector) Add(line int, format string, args ...any) {
	if line < 1 {
		line = 1
	}
	f.List = append(f.List, fault.Fault{File: f.File, Line: line, Message: fmt.Sprintf(format, args...)})
}

// Err returns the faults in the document's order, without repeats, or nil.
func (f *Collector) Err() error {
	if len(f.List) == 0 {
		return nil
	}
	sort.SliceStable(f.List, func(i, j int) bool { return f.List[i].Line < f.List[j].Line })
	out := f.List[:1]
	for _, next := range f.List[1:] {
		if next != out[len(out)-1] {
			out = append(out, next)
		}
	}
	return Bounded(out, "faults")
}

// Bounded keeps a list short enough to send and to read; of says what it lists.
func Bounded(all fault.Faults, of string) fault.Faults {
	if len(all) <= MostFaults {
		return all
	}
	next := all[MostFaults]
	return append(all[:MostFaults:MostFaults], fault.Fault{File: next.File, Line: next.Line, Message: fmt.Sprintf("and %d more %s", len(all)-MostFaults, of)})
}
