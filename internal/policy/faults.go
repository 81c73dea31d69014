package policy

import (
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/policy/strict"
)

// MaxFaults is how many faults are reported at most.
const MaxFaults = strict.MostFaults

// Fault is one thing wrong with a document.
type Fault = fault.Fault

// Faults is everything wrong with a document, by line: the error of Parse.
type Faults = fault.Faults

// BoundedFaults keeps a list of warnings short enough to send and to read.
func BoundedFaults(warnings Faults) Faults { return strict.Bounded(warnings, "warnings") }
