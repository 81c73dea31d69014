package size

import (
	"math"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// books is the rows that the usage of one ledger key makes, a second.
type books struct {
	rows    float64 // of reports
	entries float64
	rollups float64
}

// booked returns the books of a key of which d units a second are used at each gateway.
//
// A gateway reports a key once an interval if it was used in it. A report over a slot's edge has a row of the key for
// both slots. A fold writes one entry for each key and slot that it has reports of, whatever their number. Each server
// folds every interval. So a slot has as many entries as folds while its usage comes in, less the folds that receive no
// report of it.
func booked(gateways, d float64, report, fold time.Duration, servers int) books {
	every, folded := report.Seconds(), fold.Seconds()/float64(servers)
	used := 1 - math.Exp(-d*every)                               // the part of reports that have it
	edges := 1 + used*min(every/ledger.DefaultSlot.Seconds(), 1) // rows of it in a report that has it
	in, each := min(folded/every, 1), max(folded/every, 1)       // the chance that a gateway's report comes into a fold, and how many do
	has := 1 - math.Pow(1-used*in, gateways*each)
	return books{
		rows:    gateways * used / every * edges,
		entries: has / folded * edges,
		rollups: (1 - math.Exp(-gateways*d*3600)) / 3600,
	}
}
