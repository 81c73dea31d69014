package ledger

import (
	"errors"
	"fmt"
	"time"
)

// The facts that retention puts into files: by the month that reports are of, and that
// the slots of entries are in.
const (
	FactReports = "reports"
	FactEntries = "entries"
)

// LeastKept is how many whole months before the present one stay in the ledger, however
// few are asked for: servers keep room for MonthsBack, and the month that is oldest
// takes no more usage.
const LeastKept = MonthsBack + 1

// Archive says which file a month of a fact went into.
type Archive struct {
	Month  time.Time
	Fact   string
	File   string // its name, without a directory
	Rows   int64
	Bytes  int64  // of the file
	SHA256 string // of the file, in hexadecimal
	// Low and High are the heights of the blocks that its entries are of; 0 for none.
	Low, High int64
}

// ErrRetention means that a month cannot be archived as it is asked for.
var ErrRetention = errors.New("ledger: cannot be archived")

// Behind reports whether months that the window has were retired: from is where the
// oldest month that there is begins, Unix seconds. What was judged by the window may not
// be stored then.
func (w Window) Behind(from int64) bool { return w.From < from }

// NeedsEntries says why a reading cannot be made: it cuts an hour of which the entries
// are archived, so that only its sum is known. before is Archived.Before. Errors wrap
// ErrQuery.
func (r *Reading) NeedsEntries(before int64) error {
	if len(r.Cut) == 0 || r.Cut[0] >= before {
		return nil
	}
	return fmt.Errorf("%w: entries before %s are archived, and the hour of %s is cut: of these months ask for whole hours, and for days and months of a zone whose days begin with an hour of UTC",
		ErrQuery, stamp(before), stamp(r.Cut[0]))
}
