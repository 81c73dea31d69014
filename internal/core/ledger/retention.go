package ledger

import (
	"errors"
	"fmt"
	"time"
)

// The facts that retention puts into files: reports by their month, and entries by the month of their slots.
const (
	FactReports = "reports"
	FactEntries = "entries"
)

// LeastKept is the least number of whole months before the present one that stay in the ledger. Servers keep
// room for MonthsBack, and the oldest month takes no more usage.
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

// Behind reports whether months of the window were retired; from is where the oldest month left begins, Unix
// seconds. Rows judged by the window may not be stored then.
func (w Window) Behind(from int64) bool { return w.From < from }

// NeedsEntries says why a reading cannot be made. It cuts an hour whose entries are archived, so only the
// hour's sum is known. before is Archived.Before. Errors wrap ErrQuery.
func (r *Reading) NeedsEntries(before int64) error {
	if len(r.Cut) == 0 || r.Cut[0] >= before {
		return nil
	}
	return fmt.Errorf("%w: entries before %s are archived, and the hour of %s is cut: of these months ask for whole hours, and for days and months of a zone whose days begin with an hour of UTC",
		ErrQuery, stamp(before), stamp(r.Cut[0]))
}
