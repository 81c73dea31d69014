package agent

import "github.com/f4ee788f/quota/internal/core/ledger"

// History goes through the records of a life, or of a part of one, for the reports that the ledger
// acknowledged: what it may be sent again, should it have forgotten them.
type History struct{ r *Recovery }

// NewHistory calls report for each report that was acknowledged, in their order, and through where a log goes on from one
// that was put away: with how far the epoch was acknowledged by then, its last number and all its units.
func NewHistory(agent string, epoch int64, report func(ledger.Report), through func(e ledger.Epoch, seq, total int64)) *History {
	r := NewRecovery(agent, epoch)
	r.outbox.acknowledge, r.through = report, through
	return &History{r}
}

// Record takes the next record. What cells feed and what was booked of them is not gone into.
func (h *History) Record(record []byte) error {
	switch record[0] {
	case recordFrozen, recordReceived, recordOutbox, recordOrigin:
		return h.r.Record(record)
	}
	return nil
}
